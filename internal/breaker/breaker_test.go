package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fakeStore fails with err, if any, once whatever is in gate has been let go.
type fakeStore struct {
	window.Store

	mu     sync.Mutex
	err    error
	takes  int
	pings  int
	denies bool
	at     int64         // of decisions
	gate   chan struct{} // nil: open
	stuck  bool          // pings wait for their context
}

func (s *fakeStore) Take(context.Context, []window.Charge) ([]window.Decision, error) {
	s.mu.Lock()
	s.takes++
	err, gate, allowed, at := s.err, s.gate, !s.denies, s.at
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return []window.Decision{{Allowed: allowed, At: at}}, err
}

func (s *fakeStore) ChargeMore(context.Context, window.Charge, int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes++
	return s.err
}

func (s *fakeStore) Ping(ctx context.Context) error {
	s.mu.Lock()
	s.pings++
	err, stuck := s.err, s.stuck
	s.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *fakeStore) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeStore) counts() (takes, pings int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes, s.pings
}

var errDown = fmt.Errorf("connection refused: %w", window.ErrUnavailable)

// guarded is a Breaker under test, in a bubble of synctest.
type guarded struct {
	*testing.T
	*breaker.Breaker
	store   *fakeStore
	mu      sync.Mutex
	changes []string
}

func inBubble(t *testing.T, run func(b *guarded)) {
	synctest.Test(t, func(t *testing.T) {
		b := &guarded{T: t, store: new(fakeStore)}
		b.Breaker = breaker.New(b.store, func(part string, open bool, cause error) {
			time.Sleep(time.Millisecond) // as a log may
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changes = append(b.changes, strings.TrimSpace(fmt.Sprintf("%s %v %v", part, open, cause)))
		}, nil)
		run(b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// take asks, and tells whether the store was asked.
func (b *guarded) take() (asked bool, err error) {
	before, _ := b.store.counts()
	_, err = b.Take(b.Context(), nil)
	after, _ := b.store.counts()
	return after > before, err
}

// fail makes n calls that fail.
func (b *guarded) fail(n int) {
	b.Helper()
	b.store.set(errDown)
	for range n {
		if asked, err := b.take(); !asked || !errors.Is(err, errDown) || errors.Is(err, breaker.ErrOpen) {
			b.Fatalf("Take = %v (asked: %v), want the store's error", err, asked)
		}
	}
}

func (b *guarded) wantOpen(want bool) {
	b.Helper()
	asked, err := b.take()
	if open := errors.Is(err, breaker.ErrOpen); open != want || asked == want {
		b.Errorf("Take = %v (asked: %v), want open: %v", err, asked, want)
	}
	if want && !errors.Is(err, window.ErrUnavailable) {
		b.Errorf("Take = %v, want ErrUnavailable", err)
	}
}

func (b *guarded) wantChanges(want ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.changes, want) {
		b.Errorf("changes %q, want %q", b.changes, want)
	}
}

const (
	opened = "true connection refused: store unavailable"
	closed = "false <nil>"
)

func TestBreakerOpensAndCloses(t *testing.T) {
	inBubble(t, func(b *guarded) {
		b.fail(2)
		b.store.set(nil)
		b.wantOpen(false) // one answer, and the count starts anew
		b.fail(2)
		b.wantChanges()
		b.fail(1)
		b.wantOpen(true)
		time.Sleep(5 * time.Second)
		b.wantOpen(true)
		b.wantChanges(opened)
		if _, pings := b.store.counts(); pings < 24 || pings > 25 {
			b.Errorf("%d pings in 5s, want five a second", pings)
		}
		b.store.set(nil)
		start := time.Now()
		for {
			if _, err := b.take(); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(start); took > 250*time.Millisecond {
			b.Errorf("closed after %s, want at the next ping", took)
		}
		b.wantChanges(opened, closed)
		_, pings := b.store.counts()
		time.Sleep(time.Minute)
		if _, after := b.store.counts(); after != pings {
			b.Errorf("%d pings while closed", after-pings)
		}
		b.fail(2)
		b.wantOpenAfterOneMore()
		b.wantChanges(opened, closed, opened)
	})
}

// wantOpenAfterOneMore makes the failure that opens.
func (b *guarded) wantOpenAfterOneMore() {
	b.Helper()
	b.fail(1)
	b.wantOpen(true)
	time.Sleep(10 * time.Millisecond)
}

// A store of which others say that it is away is asked once it has answered a ping.
func TestBreakerDoubt(t *testing.T) {
	inBubble(t, func(b *guarded) {
		const doubted = "true others say so"
		others := errors.New("others say so")
		b.ForceOpen("", others)
		b.wantChanges(doubted)
		b.wantOpen(true)
		time.Sleep(2 * time.Millisecond)
		b.wantOpen(false)
		b.wantChanges(doubted, closed)

		b.store.set(errDown)
		b.ForceOpen("", others)
		b.ForceOpen("", others) // which changes nothing
		b.wantOpen(true)
		time.Sleep(5 * time.Second)
		b.wantOpen(true)
		if _, pings := b.store.counts(); pings < 25 || pings > 27 {
			b.Errorf("%d pings in 5s, want five a second", pings)
		}
		b.store.set(nil)
		time.Sleep(time.Second)
		b.wantOpen(false)
		b.wantChanges(doubted, closed, doubted, closed)

		b.store.stuck = true
		b.ForceOpen("", others)
		if err := b.Close(); err != nil {
			b.Error(err)
		}
		b.ForceOpen("", others)
		b.wantChanges(doubted, closed, doubted, closed, doubted)
	})
}

func TestBreakerStaysClosed(t *testing.T) {
	for _, err := range []error{
		nil,
		context.Canceled,
		fmt.Errorf("%w: %w", window.ErrUnavailable, context.Canceled),
		fmt.Errorf("zone %q: %w", "z", window.ErrInvalid),
		fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrBusy),
		fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrForeign),
	} {
		inBubble(t, func(b *guarded) {
			b.fail(2)
			b.store.set(err)
			for range 10 {
				if asked, got := b.take(); !asked || !errors.Is(got, err) {
					b.Errorf("Take = %v (asked: %v), want %v", got, asked, err)
				}
			}
			b.wantChanges()
		})
	}
}

// TestBreakerSettles counts failures of either call, and refuses both while open.
func TestBreakerSettles(t *testing.T) {
	inBubble(t, func(b *guarded) {
		more := func() error { return b.ChargeMore(b.Context(), window.Charge{}, 1) }
		if err := more(); err != nil || b.Open() {
			b.Errorf("ChargeMore = %v, open: %v, want neither", err, b.Open())
		}
		b.fail(2)
		if err := more(); !errors.Is(err, errDown) {
			b.Errorf("ChargeMore = %v, want the store's error", err)
		}
		b.wantOpen(true)
		before, _ := b.store.counts()
		if err := more(); !errors.Is(err, breaker.ErrOpen) || !b.Open() {
			b.Errorf("ChargeMore = %v, open: %v, want ErrOpen", err, b.Open())
		}
		if after, _ := b.store.counts(); after != before {
			b.Error("the store was asked")
		}
		time.Sleep(2 * time.Millisecond) // for the change to be told
		b.wantChanges(opened)
	})
}

// TestBreakerDenials has a store that knows some denials while it is away.
func TestBreakerDenials(t *testing.T) {
	inBubble(t, func(b *guarded) {
		for range 2 {
			b.fail(1)
			b.store.set(nil)
			b.store.denies = true
			b.wantOpen(false)
			b.store.denies = false
		}
		b.wantOpenAfterOneMore()
		b.wantChanges(opened)
	})
}

// What a lease lets pass says nothing of the server, but that the lease was taken does.
func TestBreakerLeases(t *testing.T) {
	leased := []window.Charge{{Zone: "zone", Lease: window.Lease{Units: 10}}}
	ask := func(b *guarded, at int64) {
		b.store.set(nil)
		b.store.at = at
		if ds, err := b.Take(b.Context(), leased); err != nil || !ds[0].Allowed {
			b.Errorf("Take = %+v, %v, want it allowed", ds, err)
		}
	}
	inBubble(t, func(b *guarded) {
		ask(b, 5)
		for range 2 {
			b.fail(1)
			ask(b, 5)
			ask(b, 4)
		}
		b.wantOpenAfterOneMore()
		b.wantChanges(opened)
	})
	inBubble(t, func(b *guarded) {
		for at := range int64(4) {
			b.fail(2)
			ask(b, 5+at)
		}
		b.wantChanges()
	})
}

func TestBreakerDeadlineCounts(t *testing.T) {
	inBubble(t, func(b *guarded) {
		b.store.set(fmt.Errorf("%w: %w", window.ErrUnavailable, context.DeadlineExceeded))
		for range 3 {
			_, _ = b.take()
		}
		b.wantOpen(true)
	})
}

// TestBreakerLateFailures lets calls fail that began before the store was away
// and came back.
func TestBreakerLateFailures(t *testing.T) {
	inBubble(t, func(b *guarded) {
		b.store.set(errDown)
		b.store.gate = make(chan struct{})
		var late sync.WaitGroup
		for range 10 {
			late.Go(func() { _, _ = b.Take(b.Context(), nil) })
		}
		synctest.Wait()
		gate := b.store.gate
		b.store.mu.Lock()
		b.store.gate = nil
		b.store.mu.Unlock()
		b.fail(3)
		b.wantOpen(true)
		b.store.set(nil)
		time.Sleep(time.Second)
		b.wantChanges(opened, closed)
		close(gate)
		late.Wait()
		b.fail(2) // neither the late ones nor those before count now
		b.wantChanges(opened, closed)
	})
}

// TestBreakerManyFailAtOnce lets calls fail together, as a lost connection does to
// those that share it. They count as one; three crowds are a row.
func TestBreakerManyFailAtOnce(t *testing.T) {
	inBubble(t, func(b *guarded) {
		b.store.set(errDown)
		for range 3 {
			time.Sleep(10 * time.Millisecond)
			b.wantChanges()
			gate := make(chan struct{})
			b.store.gate = gate
			var group sync.WaitGroup
			for range 100 {
				group.Go(func() { _, _ = b.Take(b.Context(), nil) })
			}
			synctest.Wait()
			close(gate)
			group.Wait()
		}
		b.store.gate = nil
		b.wantOpen(true)
		time.Sleep(time.Second)
		b.wantChanges(opened)
		if _, pings := b.store.counts(); pings > 5 {
			b.Errorf("%d pings in 1s, want one prober", pings)
		}
	})
}

func TestBreakerClose(t *testing.T) {
	inBubble(t, func(b *guarded) { // closed while open, with a ping under way
		b.store.stuck = true
		b.fail(3)
		time.Sleep(time.Second)
		if err := b.Close(); err != nil {
			b.Error(err)
		}
		b.wantOpen(true)
		b.wantChanges(opened)
	})
	inBubble(t, func(b *guarded) { // nothing opens after Close
		if err := b.Close(); err != nil {
			b.Error(err)
		}
		b.fail(10)
		b.wantChanges()
	})
}

// Reach pings a store that is away five times a second, as the breaker does once it is open, and
// not beside it.
func TestReach(t *testing.T) {
	inBubble(t, func(b *guarded) {
		b.store.set(errDown)
		reached := make(chan error, 1)
		go func() { reached <- b.Reach(b.Context()) }()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		if _, pings := b.store.counts(); pings < 50 || pings > 52 {
			t.Errorf("%d pings in 10 s, want 5 a second", pings)
		}
		if asked, err := b.take(); asked || !errors.Is(err, breaker.ErrOpen) {
			t.Errorf("the store was asked %v, %v, want that it is not", asked, err)
		}
		b.store.set(nil)
		if err := <-reached; err != nil {
			t.Error(err)
		}
		if asked, err := b.take(); !asked || err != nil {
			t.Errorf("the store was asked %v, %v, once it was reached", asked, err)
		}
	})
	inBubble(t, func(b *guarded) {
		b.store.set(errDown)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if err := b.Reach(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reach = %v, want that its time is over", err)
		}
	})
}
