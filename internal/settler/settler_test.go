package settler

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fakeStore settles, or fails, once it is told to go on.
type fakeStore struct {
	window.Store // none: what a settler does not use panics
	goOn         chan struct{}
	err          error

	mu      sync.Mutex // guards what follows
	batches []int      // how many settlements each had
	units   int64
}

func newFake() *fakeStore { return &fakeStore{goOn: make(chan struct{})} }

func (f *fakeStore) SettleBatch(_ context.Context, all []engine.Settlement) []error {
	<-f.goOn
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, len(all))
	errs := make([]error, len(all))
	for i := range all {
		if errs[i] = f.err; f.err == nil {
			f.units += all[i].Delta
		}
	}
	return errs
}

func (*fakeStore) Ping(context.Context) error { return nil }

func (*fakeStore) String() string { return "fake" }

// site is a settler of a fake store.
type site struct {
	*Settler
	store   *fakeStore
	zone    *Account
	held    atomic.Int64
	charged sync.Map // the cost of what was settled, by its key
}

// newSite returns one whose store can be away, or not, in a bubble of synctest.
func newSite(t *testing.T, remote bool) *site {
	f, s := newFake(), new(site)
	var away *fallback.Guard
	if remote {
		away = fallback.New(f, fallback.Options{})
		t.Cleanup(func() { _ = away.Close() })
	}
	s.store, s.Settler = f, New(f, away, func(*window.Charge) { s.held.Add(1) }, func() { s.held.Add(-1) })
	s.zone = NewAccount(t.Name(), func(key string, units int64) {
		if before, twice := s.charged.Swap(key, units); twice {
			t.Errorf("key %s: %d units are noted after %v", key, units, before)
		}
	})
	s.Use()
	return s
}

// admit returns the receipts of n charges of three units, each of a key of its own.
func (s *site) admit(n int) []Receipt {
	all := make([]Receipt, n)
	for i := range all {
		all[i].Charge = window.Charge{Zone: s.zone.name, Key: strconv.Itoa(i), Cost: 3, Algorithm: window.Zset{}, Policies: []window.Policy{{Limit: 10, Window: time.Hour}}}
		s.Admit(&all[i], s.zone)
	}
	return all
}

// queued returns how many settlements wait for others.
func (s *site) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// open returns how many of the receipts are not settled.
func (s *site) open(all []Receipt) (n int) {
	for i := range all {
		if s.InFlight().Any(all[i].counter) {
			n++
		}
	}
	return n
}

// A queue that is full makes requests settle by themselves. None is dropped.
func TestQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const byThemselves = mostTogether + 49
		s := newSite(t, true)
		all := s.admit(1 + mostQueued + byThemselves)
		if n, held := s.open(all), s.held.Load(); n != len(all) || held != int64(n) {
			t.Errorf("%d receipts are open and %d hold the store, want %d", n, held, len(all))
		}
		s.Settle(&all[0], 0)
		synctest.Wait()
		if n := s.queued(); n != 0 {
			t.Fatalf("%d settlements wait, want that the first is on its way", n)
		}
		var wg sync.WaitGroup
		for i := range all[1:] {
			wg.Go(func() { s.Settle(&all[1+i], 0) })
		}
		synctest.Wait()
		if n := s.queued(); n != mostQueued {
			t.Fatalf("%d settlements wait, want %d", n, mostQueued)
		}
		close(s.store.goOn)
		wg.Wait()
		s.Drain(time.Minute)
		if want := -3 * int64(len(all)); s.store.units != want {
			t.Errorf("%d units were given back, want %d", -s.store.units, -want)
		}
		if n, most := len(s.store.batches), slices.Max(s.store.batches); n != 1+byThemselves+mostQueued/mostTogether || most != mostTogether {
			t.Errorf("%d batches of at most %d, want %d of %d", n, most, 1+byThemselves+mostQueued/mostTogether, mostTogether)
		}
		if n, held := s.open(all), s.held.Load(); n != 0 || held != 0 {
			t.Errorf("%d receipts are open and %d hold the store, want none", n, held)
		}
	})
}

// Drain waits for what is on its way, but no longer than it is told. Who settles units above the
// reservation can wait for them.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, true)
		all := s.admit(2)
		if s.Settle(&all[0], 0) != nil {
			t.Error("units that come back have a channel")
		}
		done := s.Settle(&all[1], 5)
		start := time.Now()
		s.Drain(time.Second)
		if waited := time.Since(start); waited != time.Second || s.held.Load() != 2 {
			t.Errorf("it ended after %s, and %d receipts hold the store; want 1s and 2", waited, s.held.Load())
		}
		select {
		case <-done:
			t.Error("the channel is closed before the store has the units")
		default:
		}
		close(s.store.goOn)
		s.Drain(time.Minute)
		<-done
		if waited := time.Since(start); waited != time.Second || s.held.Load() != 0 || s.store.units != 2-3 {
			t.Errorf("it ended after %s, %d receipts hold the store, which has %d units more; want 1s, 0 and -1", waited, s.held.Load(), s.store.units)
		}
		s.Drain(time.Minute) // nothing is queued
	})
}

// How settlements of three units go, as the metrics and those who wait see it, with a store in this process.
func TestSettled(t *testing.T) {
	for _, c := range []struct {
		name    string
		units   int64
		err     error
		want    string
		refunds uint64
	}{
		{"kept", 3, nil, "3 kept, 0 given back, 0 excess, 0 lost, 0 unknown, 0 failed", 0},
		{"given back", 1, nil, "1 kept, 2 given back, 0 excess, 0 lost, 0 unknown, 0 failed", 1},
		{"excess", 5, nil, "3 kept, 0 given back, 2 excess, 0 lost, 0 unknown, 0 failed", 0},
		{"lost", 5, window.ErrUnavailable, "0 kept, 0 given back, 0 excess, 2 lost, 0 unknown, 1 failed", 0},
		{"not given back", 0, window.ErrUnavailable, "0 kept, 0 given back, 0 excess, 0 lost, 0 unknown, 1 failed", 1},
		{"perhaps given back", 0, window.ErrUnknown, "0 kept, 0 given back, 0 excess, 0 lost, 1 unknown, 0 failed", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, false)
			s.store.err = c.err
			close(s.store.goOn)
			all := s.admit(1)
			done := s.Settle(&all[0], c.units)
			if (done != nil) != (c.units > 3) {
				t.Errorf("there is a channel: %t", done != nil)
			}
			if done != nil {
				<-done
			}
			if s.Settle(&all[0], 7) != nil {
				t.Error("it is settled twice")
			}
			t.Cleanup(func() { // for -count
				zone := prometheus.Labels{"zone": t.Name()}
				metrics.SettledTotal.DeletePartialMatch(zone)
				metrics.SettleErrorsTotal.DeletePartialMatch(zone)
				metrics.SettleSeconds.DeletePartialMatch(zone)
			})
			of := metricstest.Of(metrics.SettledTotal, metrics.SettleErrorsTotal, metrics.SettleSeconds)
			value := func(name, label, word string) float64 {
				n, ok := metricstest.Find(t, of, "caddy_sliding_window_"+name, "zone", t.Name(), label, word)
				if !ok {
					t.Errorf("no %s of %s", name, word)
				}
				return n
			}
			units := func(direction string) float64 { return value("settled_units_total", "direction", direction) }
			got := fmt.Sprintf("%v kept, %v given back, %v excess, %v lost, %v unknown, %v failed", units("kept"), units("given_back"), units("excess"), units("lost"),
				value("settle_errors_total", "reason", "unknown"), value("settle_errors_total", "reason", "failed"))
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if n, _ := metricstest.Find(t, of, "caddy_sliding_window_settle_seconds", "zone", t.Name()); (n == 1) != (c.err == nil) {
				t.Errorf("%v settlements are timed after error %v", n, c.err)
			}
			if charged, _ := s.charged.Load("0"); charged != c.units {
				t.Errorf("%v units are noted, want %d", charged, c.units)
			}
			if refunds := s.InFlight().RefundsOf(all[0].counter).Load(); refunds != c.refunds || s.open(all) != 0 || s.held.Load() != 0 {
				t.Errorf("%d give-refunds, %d receipts are open and %d hold the store; want %d, 0 and 0", refunds, s.open(all), s.held.Load(), c.refunds)
			}
		})
	}
}
