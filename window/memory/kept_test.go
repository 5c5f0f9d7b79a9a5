package memory

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestKeptBucketsAreSwept keeps a key for as long as the longer of two windows that took turns
// matters, though the last charge had the shorter one.
func TestKeptBucketsAreSwept(t *testing.T) {
	var now int64 = 1_000_000_000
	s := New(Options{SweepInterval: -1, Now: func() int64 { return now }})
	defer func() { _ = s.Close() }()
	in := func(length time.Duration) []window.Charge {
		return []window.Charge{{
			Zone: "zone", Key: "key", Cost: 1, Algorithm: window.GCRA{},
			Policies: []window.Policy{{Limit: 10, Window: length}},
		}}
	}
	for _, length := range []time.Duration{time.Hour, time.Second} {
		if ds, err := s.Take(t.Context(), in(length)); err != nil || !window.Allowed(ds) {
			t.Fatalf("Take = %+v, %v", ds, err)
		}
	}
	now += 3_599_999
	s.sweep()
	if n := s.Keys(); n != 1 {
		t.Errorf("%d keys just before the end of the longer window, want 1", n)
	}
	now++
	s.sweep()
	if n := s.Keys(); n != 0 {
		t.Errorf("%d keys at the end of the longer window, want none", n)
	}
}

// TestLookbackIsKept keeps units for as long as other requests on their counter look back, though the last charge, and
// a denial after it, had a window that is over.
func TestLookbackIsKept(t *testing.T) {
	for _, a := range []window.Algorithm{
		window.Zset{}, window.Log{}, window.Stream{}, window.Slices{}, window.Slices{Count: 3, Weighted: true},
		window.Slices{Min: 10 * time.Millisecond, Max: time.Second}, window.Layers{Coarse: 100 * time.Millisecond, Fine: 10 * time.Millisecond},
	} {
		var now int64 = 1_000_000_000
		s := New(Options{SweepInterval: -1, Now: func() int64 { return now }})
		take := func(limit int64, length time.Duration) bool {
			ds, err := s.Take(t.Context(), []window.Charge{{
				Zone: "zone", Key: "key", Cost: 1, Algorithm: a, Lookback: time.Minute, Policies: []window.Policy{{Limit: limit, Window: length}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return window.Allowed(ds)
		}
		take(2, time.Minute)
		now += 1000
		if !take(1, 100*time.Millisecond) {
			t.Errorf("%T: the short window is not empty", a)
		}
		take(1, 100*time.Millisecond)
		now += 1000
		s.sweep()
		if take(2, time.Minute) {
			t.Errorf("%T: a unit was forgotten", a)
		}
		if err := s.ChargeMore(t.Context(), window.Charge{
			Zone: "zone", Key: "key", Cost: 1, Algorithm: a, Lookback: time.Minute, Policies: []window.Policy{{Limit: 1, Window: 100 * time.Millisecond}},
		}, 1); err != nil {
			t.Fatal(err)
		}
		now += 57_999
		s.sweep()
		if take(2, time.Minute) {
			t.Errorf("%T: a unit of ChargeMore was forgotten", a)
		}
		now += 120_000
		s.sweep()
		if n := s.Keys(); n != 0 {
			t.Errorf("%T: %d keys are left", a, n)
		}
		_ = s.Close()
	}
}
