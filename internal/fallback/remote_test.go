package fallback_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mode is what a remote does.
type mode int

const (
	up      mode = iota
	down         // refuses
	busy         // refuses, and is not away
	lost         // charges, and its answer is lost
	dropped      // does not charge, and the sender does not know
)

// remote is a store that others share, in memory, and has its faults.
type remote struct {
	*memory.Store

	mu             sync.Mutex
	mode           mode
	failTake       bool             // once, and for a reason of its own
	charged        map[string]int64 // units that were taken, by zone
	settled        map[string]int64 // that were settled
	dropped        map[string]int64 // and that were to be, and the sender does not know that they were not
	tries, settles int              // calls of Settle, and those that were not refused
	resets         int              // calls of Reset
	fields         []string         // that calls of Settle had

	settling atomic.Int64 // calls of Settle that have begun; mu does not guard it
}

func newRemote() *remote {
	return &remote{
		Store:   memory.New(memory.Options{SweepInterval: -1}),
		charged: make(map[string]int64), settled: make(map[string]int64), dropped: make(map[string]int64),
	}
}

// The following return what there is of the fields of that meaning.

func (r *remote) booked(zone string) int64 { return locked(r, func() int64 { return r.settled[zone] }) }

func (r *remote) lost(zone string) int64 { return locked(r, func() int64 { return r.dropped[zone] }) }
func (r *remote) bookings() int          { return locked(r, func() int { return r.settles }) }
func (r *remote) attempts() int          { return locked(r, func() int { return r.tries }) }

func (r *remote) taken() map[string]int64 {
	return locked(r, func() map[string]int64 { return maps.Clone(r.charged) })
}

func locked[T any](r *remote, get func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return get()
}

func (r *remote) become(m mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = m
}

// fault returns the error of the mode, and whether nothing is done.
func (r *remote) fault() (err error, idle bool) {
	switch r.mode {
	case down:
		return fmt.Errorf("refused: %w", window.ErrUnavailable), true
	case busy:
		return fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrBusy), true
	case lost:
		return fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrUnknown), false
	case dropped:
		return fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrUnknown), true
	}
	return nil, false
}

func (r *remote) TakeInto(ctx context.Context, _ []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return r.Take(ctx, charges)
}

func (r *remote) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err, idle := r.fault()
	if r.failTake && !idle {
		r.failTake = false
		return nil, window.ErrUnavailable
	}
	if idle {
		return nil, err
	}
	ds, _ := r.Store.Take(ctx, charges)
	if window.Allowed(ds) {
		for i := range charges {
			r.charged[charges[i].Zone] += charges[i].Cost
		}
	}
	if err != nil {
		return nil, err
	}
	return ds, nil
}

func (r *remote) GiveBack(ctx context.Context, c window.Charge, at, units int64) error {
	return r.settle(ctx, c, at, -units)
}

func (r *remote) ChargeMore(ctx context.Context, c window.Charge, units int64) error {
	return r.settle(ctx, c, 0, units)
}

func (r *remote) settle(ctx context.Context, c window.Charge, at, delta int64) error {
	r.settling.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	r.fields = append(r.fields, c.Fields...)
	err, idle := r.fault()
	if idle {
		if r.mode == dropped {
			r.dropped[c.Zone] += delta
		}
		return err
	}
	r.settles++
	_ = engine.Settle(ctx, r.Store, c, at, delta)
	r.settled[c.Zone] += delta
	return err
}

func (r *remote) Ping(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err, _ := r.fault()
	return err
}

// site decides as a handler does: by the store, or by itself.
type site struct {
	*fallback.Guard
	remote *remote
	share  bool
}

func newSite(t *testing.T, r *remote) *site {
	s := &site{Guard: fallback.New(r, fallback.Options{}), remote: r}
	s.EnableLocal()
	t.Cleanup(func() { s.close(t) })
	return s
}

func (s *site) close(t *testing.T) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_ = s.remote.Close()
}

// decide returns the decisions, and the error of the store if they are not its own.
func (s *site) decide(t *testing.T, charges ...window.Charge) ([]window.Decision, error) {
	t.Helper()
	ds, cause := s.Take(t.Context(), charges)
	if cause == nil {
		return ds, nil
	}
	ds, err := s.TakeLocal(t.Context(), charges, cause, s.share)
	if err != nil {
		t.Errorf("TakeLocal = %v", err)
	}
	return ds, cause
}

// passed returns how many of n requests pass, one after the other.
func (s *site) passed(t *testing.T, n int, charges ...window.Charge) (passed int64) {
	t.Helper()
	for range n {
		if ds, _ := s.decide(t, charges...); window.Allowed(ds) {
			passed++
		}
	}
	return passed
}

func (s *site) want(t *testing.T, what string, want int64, c window.Charge) {
	t.Helper()
	if got := s.passed(t, 2*int(c.Policies[0].Limit)+5, c); got != want {
		t.Errorf("%s: %d pass, want %d", what, got, want)
	}
}

// away makes the store unreachable, and opens the breaker.
func (s *site) away(t *testing.T) {
	s.remote.become(down)
	for range 3 {
		_, _ = s.decide(t, charge("breaker", "key", 1, time.Second))
	}
}

// back makes the store reachable, and closes the breaker.
func (s *site) back() {
	s.remote.become(up)
	time.Sleep(time.Second)
}

var charge = windowtest.Charge

// variants are algorithms, with what passes in a window of a limit at most.
var variants = []struct {
	name      string
	algorithm window.Algorithm
	most      func(limit int64) int64
}{
	{"zset", window.Zset{}, exactly},
	{"log", window.Log{}, exactly},
	{"stream", window.Stream{}, exactly},
	{"slices", window.Slices{Count: 10}, exactly},
	{"layers", window.Layers{Coarse: time.Second, Fine: 100 * time.Millisecond}, exactly},
	{"adaptive", window.Slices{Min: 100 * time.Millisecond, Max: time.Second}, exactly},
	{"weighted", window.Slices{Count: 10, Weighted: true}, twice},
	{"gcra", window.GCRA{}, twice},
}

func exactly(limit int64) int64 { return limit }
func twice(limit int64) int64   { return 2*limit - 1 }

func seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 5)) }
