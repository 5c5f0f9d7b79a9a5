package suggest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// judge decides on requests of keys by the memory store, and calls each with every decision.
func judge(t testing.TB, limits []Limit, algorithm window.Algorithm, all []hit, each func(hit, bool)) {
	t.Helper()
	now := int64(0)
	store := memory.New(memory.Options{Now: func() int64 { return now }, SweepInterval: -1})
	defer func() { _ = store.Close() }()
	var policies []window.Policy
	for _, l := range limits {
		policies = append(policies, window.Policy{Limit: int64(l.Limit), Window: l.Window})
	}
	limiter, err := window.NewLimiter(store, "zone", algorithm, policies...)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		now = h.at / 1e6
		ds, err := limiter.Decide(t.Context(), h.key, 1)
		if err != nil {
			t.Fatal(err)
		}
		each(h, window.Allowed(ds))
	}
}

// TestDenied compares the simulator with the memory store, decision for decision.
func TestDenied(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		windows := []time.Duration{time.Second, 10 * time.Second, time.Minute}
		var limits []Limit
		for range 1 + r.IntN(3) {
			limits = append(limits, Limit{Limit: 1 + r.IntN(20), Window: windows[r.IntN(3)]})
		}
		at := int64(1_700_000_000_000_000_000)
		var all []hit
		var times []int64
		for range 300 {
			at += []int64{0, 1e6, r.Int64N(1e9), 1e9, 1e10}[r.IntN(5)]
			all, times = append(all, hit{"key", at}), append(times, at/1e6)
		}
		for _, algorithm := range []window.Algorithm{window.Zset{}, window.Log{}} {
			var s simulator
			judge(t, limits, algorithm, all, func(h hit, passes bool) {
				if ms := h.at / 1e6; s.fits(ms, limits) != passes {
					t.Fatalf("seed %d, %s, %v at %d: the store says %v", seed, algorithm.Name(), limits, h.at, passes)
				} else if passes {
					s.passed = append(s.passed, ms)
				}
			})
			passed := len(s.passed)
			if n := s.denied(times, limits); n != len(times)-passed {
				t.Fatalf("seed %d: %d denied, want %d", seed, n, len(times)-passed)
			}
		}
	}
}
