package shadow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore is in memory, and decides on batches once its gate is open.
type fakeStore struct {
	*memory.Store
	gate    chan struct{}
	batches []int // how many requests each had
	closed  int
}

func newStore() *fakeStore {
	return &fakeStore{Store: memory.New(memory.Options{SweepInterval: -1}), gate: make(chan struct{})}
}

func (f *fakeStore) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	f.batches = append(f.batches, len(requests))
	select {
	case <-f.gate:
		return f.Store.TakeBatch(ctx, requests)
	case <-ctx.Done():
		return fails(requests, ctx.Err())
	}
}

func (f *fakeStore) Close() error {
	f.closed++
	return f.Store.Close()
}

// fails returns that no request could be decided on.
func fails(requests [][]window.Charge, cause error) []window.Result {
	return slices.Repeat([]window.Result{{Err: fmt.Errorf("%w: %w", window.ErrUnavailable, cause)}}, len(requests))
}

// remoteStore is a fakeStore that can be away.
type remoteStore struct {
	*fakeStore
	away     bool
	attended int
}

var errAway = errors.New("connection refused")

func (r *remoteStore) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	if r.away {
		return fails(requests, errAway)
	}
	return r.fakeStore.TakeBatch(ctx, requests)
}

func (r *remoteStore) Ping(context.Context) error { return window.ErrUnavailable }

func (r *remoteStore) ChargeMore(context.Context, window.Charge, int64) error {
	return window.ErrUnavailable
}

// Register counts three.
func (r *remoteStore) Register(context.Context) (int64, error) {
	r.attended++
	return 3, nil
}

func (r *remoteStore) Leave(context.Context) error { return nil }

// The words for what a request was told.
const (
	decided = "decided"
	failed  = "failed"
	dropped = "dropped"
)

// asked is a request of a zone with 7 units an hour, and what it was told.
type asked struct {
	charge       window.Charge
	local, share bool
	told         []string
	ds           []window.Decision
	err          error
}

func ask(key string, fields ...string) *asked {
	return &asked{charge: window.Charge{
		Zone: "zone", Key: key, Fields: fields, Cost: 1, Algorithm: window.Zset{},
		Policies: []window.Policy{{Limit: 7, Window: time.Hour}},
	}}
}

func (a *asked) Charges(to []window.Charge) []window.Charge { return append(to, a.charge) }
func (a *asked) Size() int                                  { return len(a.charge.Key + strings.Join(a.charge.Fields, "")) }
func (a *asked) Local() (local, share bool)                 { return a.local, a.share }
func (a *asked) Decided(ds []window.Decision)               { a.told, a.ds = append(a.told, decided), ds }
func (a *asked) Failed(err error)                           { a.told, a.err = append(a.told, failed), err }
func (a *asked) Dropped()                                   { a.told = append(a.told, dropped) }

// add adds n requests to a slot, and returns them.
func add(s *Slot, n int, one func(i int) *asked) []*asked {
	all := make([]*asked, n)
	for i := range all {
		all[i] = one(i)
		s.Add(all[i])
	}
	return all
}

// want fails unless each request was told this, and nothing else.
func want(t *testing.T, what string, requests []*asked, word string) {
	t.Helper()
	for i, a := range requests {
		if len(a.told) != 1 || a.told[0] != word {
			t.Fatalf("%s: request %d of %d was told %q, want %s", what, i+1, len(requests), a.told, word)
		}
	}
}

// open returns a slot on a store, in which the store has a request that it does not decide on.
func open(store window.Store) (*Slot, []*asked) {
	s := &Slot{Open: func() window.Store { return store }}
	first := add(s, 1, func(int) *asked { return ask("first") })
	synctest.Wait()
	return s, first
}

func closeSlot(t *testing.T, s *Slot) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Requests that wait are bounded in number and bytes. The rest is dropped at once.
func TestBounds(t *testing.T) {
	const mega = 1 << 20
	for name, c := range map[string]struct {
		one  func(int) *asked
		most int
	}{
		"number":         {func(int) *asked { return ask("k") }, maxWaiting},
		"bytes of key":   {func(int) *asked { return ask(strings.Repeat("k", mega)) }, maxBytes / mega},
		"bytes of field": {func(int) *asked { return ask("k", "f", strings.Repeat("v", mega-2)) }, maxBytes / mega},
		"a byte more":    {func(int) *asked { return ask("k", "f", strings.Repeat("v", mega-1)) }, maxBytes/mega - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				s, first := open(store)
				waiting := add(s, c.most, c.one)
				want(t, "beyond the bound", add(s, 10, c.one), dropped)
				close(store.gate)
				synctest.Wait()
				want(t, "in the store", first, decided)
				want(t, "within the bound", waiting, decided)
				again := add(s, c.most, c.one) // there is as much room as before
				synctest.Wait()
				want(t, "afterwards", again, decided)
				closeSlot(t, s)
			})
		})
	}
}

// Requests that wait go to the store together, and each is told what was decided on it.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		s, _ := open(store)
		requests := add(s, 2*maxBatch+44, func(i int) *asked {
			a := ask(strconv.Itoa(i))
			a.charge.Cost = int64(1 + i%9)
			return a
		})
		close(store.gate)
		synctest.Wait()
		want(t, "together", requests, decided)
		if want := []int{1, maxBatch, maxBatch, 44}; !slices.Equal(store.batches, want) {
			t.Errorf("batches of %d, want %d", store.batches, want)
		}
		for i, a := range requests {
			if cost := a.charge.Cost; window.Allowed(a.ds) != (cost <= 7) || cost <= 7 && a.ds[0].Remaining != 7-cost {
				t.Errorf("request %d, cost %d: got %+v", i, cost, a.ds)
			}
		}
		closeSlot(t, s)
	})
}

// Requests that wait at the end are dropped, as are those that the store has and those that come late.
func TestClose(t *testing.T) {
	for name, remote := range map[string]bool{"memory": false, "remote": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newStore()
				var store window.Store = fake
				if remote {
					store = &remoteStore{fakeStore: fake}
				}
				one := func(int) *asked { a := ask("k"); a.local = true; return a }
				s := &Slot{Open: func() window.Store { return store }}
				first := add(s, 1, one)
				synctest.Wait()
				waiting := add(s, 10, one)
				for _, a := range waiting {
					if len(a.told) > 0 {
						t.Errorf("before the end: %q", a.told)
					}
				}
				closeSlot(t, s)
				want(t, "in the store", first, dropped)
				want(t, "waiting", waiting, dropped)
				want(t, "late", add(s, 3, one), dropped)
				if fake.closed != 1 || !slices.Equal(fake.batches, []int{1}) {
					t.Errorf("the store was closed %d times, and had batches of %d, want 1 and one request", fake.closed, fake.batches)
				}
			})
		})
	}
}

// While the store is away, local counts decide where a request says so. Limits are divided by the processes that
// the shared guard has counted.
func TestWhileAway(t *testing.T) {
	for name, c := range map[string]struct {
		local, share bool
		passed       int
	}{
		"local": {true, false, 7},
		"share": {true, true, 2},
		"not":   {false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				enforced, own := &remoteStore{fakeStore: newStore()}, &remoteStore{fakeStore: newStore(), away: true}
				presence := fallback.New(enforced, fallback.Options{})
				presence.Join()
				synctest.Wait()
				s := &Slot{Open: func() window.Store { return own }, Presence: presence}
				requests := add(s, 9, func(int) *asked { a := ask("k"); a.local, a.share = c.local, c.share; return a })
				synctest.Wait()
				word, passed := failed, 0
				if c.local {
					word = decided
				}
				want(t, "away", requests, word)
				for _, a := range requests {
					if a.err == nil && window.Allowed(a.ds) {
						passed++
					}
					if !c.local && !errors.Is(a.err, window.ErrUnavailable) {
						t.Errorf("got %v, want ErrUnavailable", a.err)
					}
				}
				if passed != c.passed {
					t.Errorf("%d pass, want %d", passed, c.passed)
				}
				closeSlot(t, s)
				if err := presence.Close(); err != nil {
					t.Error(err)
				}
				if enforced.attended == 0 || own.attended > 0 || len(enforced.batches) > 0 {
					t.Errorf("the store of the shared guard was registered at %d times, the other one %d times; the first was asked %d times",
						enforced.attended, own.attended, len(enforced.batches))
				}
				_ = enforced.Close()
			})
		})
	}
}

// A request that comes while the slot is closed is told one thing, too.
func TestAddWhileClosing(t *testing.T) {
	for range 20 {
		store := newStore()
		close(store.gate)
		s := &Slot{Open: func() window.Store { return store }}
		var requests [8][]*asked
		var group sync.WaitGroup
		for i := range requests {
			group.Go(func() { requests[i] = add(s, 200, func(int) *asked { return ask("k") }) })
		}
		group.Go(func() { closeSlot(t, s) })
		group.Wait()
		for _, all := range requests {
			for _, a := range all {
				if len(a.told) != 1 || a.told[0] == failed {
					t.Fatalf("a request was told %q", a.told)
				}
			}
		}
	}
}

// A slot opens its store for the first request or Peek, and not once it is closed.
func TestSlotOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, opened := newStore(), 0
		close(store.gate)
		s := &Slot{Open: func() window.Store { opened++; return store }}
		c := ask("k").charge
		if err := s.Reset(t.Context(), c); err != nil || opened > 0 {
			t.Errorf("Reset = %v, and opened the store %d times", err, opened)
		}
		left := func() int64 {
			ds, ok, err := s.Peek(t.Context(), []window.Charge{c})
			if !ok || err != nil {
				t.Fatalf("Peek = %v, %v", ok, err)
			}
			return ds[0].Remaining
		}
		if n := left(); n != 7 {
			t.Errorf("%d left before the first request, want 7", n)
		}
		requests := add(s, 1, func(int) *asked { return ask("k") })
		synctest.Wait()
		want(t, "open", requests, decided)
		if n := left(); n != 6 {
			t.Errorf("%d left after it, want 6", n)
		}
		if err := s.Reset(t.Context(), c); err != nil || left() != 7 {
			t.Errorf("Reset = %v, %d left", err, left())
		}
		closeSlot(t, s)
		if opened != 1 || store.closed != 1 {
			t.Errorf("opened %d times, closed %d times", opened, store.closed)
		}
	})
	for name, s := range map[string]*Slot{
		"without a store": {},
		"closed":          {Open: func() window.Store { t.Error("a closed slot is opened"); return nil }},
	} {
		if name == "closed" {
			closeSlot(t, s)
		}
		want(t, name, add(s, 1, func(int) *asked { return ask("k") }), dropped)
		if ds, ok, err := s.Peek(t.Context(), []window.Charge{ask("k").charge}); ds != nil || ok || err != nil {
			t.Errorf("%s: Peek = %v, %v, %v", name, ds, ok, err)
		}
		if err := s.Reset(t.Context(), ask("k").charge); err != nil {
			t.Errorf("%s: Reset = %v", name, err)
		}
		closeSlot(t, s)
	}
}
