package overridebook

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fakeStore keeps overrides and orders as Redis does, and has a clock that tests set.
type fakeStore struct {
	window.Store
	mu      sync.Mutex // guards all below: books look by themselves, too
	now     time.Time
	version string
	records map[string]string
	orders  map[string]string
}

func (f *fakeStore) ReadOverrides(_ context.Context, known string) (string, map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == known || f.version == "" {
		return f.version, nil, nil
	}
	return f.version, maps.Clone(f.records), nil
}

func (f *fakeStore) WriteOverrides(_ context.Context, known, next string, gone []string, records map[string]string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known != f.version {
		return f.version, nil
	}
	if f.records == nil {
		f.records = make(map[string]string)
	}
	for _, id := range gone {
		delete(f.records, id)
	}
	maps.Copy(f.records, records)
	f.version = next
	return next, nil
}

func (f *fakeStore) ExchangeOrders(_ context.Context, known, next map[string]string, _ time.Duration) (time.Time, map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.orders == nil {
		f.orders = make(map[string]string)
	}
	for zone, order := range next {
		if f.orders[zone] == known[zone] {
			f.orders[zone] = order
		}
	}
	return f.now, maps.Clone(f.orders), nil
}

// time returns what the clock of the store shows.
func (f *fakeStore) time() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (*fakeStore) HashesKeys() bool { return false }

func (*fakeStore) HashKey(string, int) (sum [32]byte, ok bool) { return sum, false }

// An override with a ttl begins and ends by the clock of the store on all Caddys, however wrong their own clocks are: when it
// is set, at look-ups, in Retry-After, and to how far back charges look.
func TestOverrideEndsByTheStoresClock(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, writer := range []int{0, 1, 2} {
		f := &fakeStore{Store: inMemory(t), now: start}
		var books []*Book
		var zones []*Subscriber
		for _, off := range []time.Duration{0, 30 * time.Second, -30 * time.Second} {
			b, z := New(f), newZone(t)
			b.clock = &storeclock.Clock{Wall: func() time.Time { return f.time().Add(off) }}
			b.Begin([]*Subscriber{z}, new(storagetest.Storage))
			t.Cleanup(func() { b.End([]*Subscriber{z}) })
			books, zones = append(books, b), append(zones, z)
		}
		r := overridestest.Limited("anna", overrides.RecordLimit{Max: 1, Window: "2h"})
		r.Zone, r.TTL = t.Name(), "12s"
		if err := r.Complete(books[writer].clock.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := books[writer].Change(t.Context(), "", func([]overrides.Record) ([]overrides.Record, error) { return []overrides.Record{r}, nil }); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after       time.Duration
			holds, back bool
		}{
			{0, true, true}, {11500 * time.Millisecond, true, true}, {12500 * time.Millisecond, false, true},
			{2*time.Hour + 11500*time.Millisecond, false, true}, {2*time.Hour + 12500*time.Millisecond, false, false},
		} {
			f.mu.Lock()
			f.now = start.Add(step.after)
			f.mu.Unlock()
			for i, b := range books {
				b.Look(t.Context())
				for _, when := range []string{"at once", "tidied"} {
					holds, back := zones[i].InForce.Rule("anna") != nil, zones[i].InForce.LookBack("anna") == 2*time.Hour
					if holds != step.holds || back != step.back {
						t.Errorf("set by Caddy %d, %s later, %s: at Caddy %d the override holds: %v, is looked back on: %v; want %v, %v", writer, step.after, when, i, holds, back, step.holds, step.back)
					}
					if r := zones[i].InForce.Rule("anna"); r != nil && (12*time.Second-step.after-r.Left()).Abs() > time.Second {
						t.Errorf("%s later, at Caddy %d the override holds for %s more", step.after, i, r.Left())
					}
					b.Tidy(b.clock.Now())
				}
			}
		}
	}
}
