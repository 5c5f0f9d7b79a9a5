package redis_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

// TestBatchesAgree decides on requests for few keys, which a run of the script reads
// together, and compares each decision with that of memory.
func TestBatchesAgree(t *testing.T) {
	for _, algo := range algorithms {
		t.Run(algo.Name(), func(t *testing.T) {
			r, clock := rand.New(rand.NewPCG(4, 4)), windowtest.NewClock()
			m, s := openMemory(t, clock), open(t, clock)
			denied := 0
			for batch := range 150 {
				clock.Add(r.Int64N(300))
				requests := make([][]window.Charge, 1+r.IntN(70))
				for i := range requests {
					c := charge([]string{"one", "two"}[r.IntN(8)/7], string(rune('a'+r.IntN(6))), 30, 2*time.Second)
					c.Algorithm = algo
					switch r.IntN(12) {
					case 0:
						c.Cost = 1 + r.Int64N(8)
					case 1:
						c.Policies = append(slices.Clone(c.Policies), window.Policy{Limit: 15, Window: time.Second})
					}
					requests[i] = []window.Charge{c}
				}
				want := m.TakeBatch(t.Context(), requests)
				for i, got := range s.TakeBatch(t.Context(), requests) {
					if got.Err != nil || !slices.Equal(got.Decisions, want[i].Decisions) {
						t.Fatalf("batch %d at %d, request %d, %+v: %+v, want %+v", batch, clock.Now(), i, requests[i], got, want[i])
					}
					if !window.Allowed(got.Decisions) {
						denied++
					}
				}
			}
			if denied == 0 {
				t.Error("nothing was denied")
			}
		})
	}
}
