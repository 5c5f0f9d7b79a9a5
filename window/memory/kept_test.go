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
