package redis_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
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

// TestRunsAgree has runs of requests for one counter among those of a batch, which the
// script decides on without reading it each time, for one unit mostly: of units of several
// limits and windows, of more units and policies, of packed counters that share a hash.
func TestRunsAgree(t *testing.T) {
	type variant struct {
		name string
		algo window.Algorithm
		pack int64
	}
	variants := []variant{{"gcra, pack", window.GCRA{}, 20}}
	for _, algo := range algorithms {
		variants = append(variants, variant{algo.Name(), algo, 0})
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			r, clock := rand.New(rand.NewPCG(5, 5)), windowtest.NewClock()
			m, s := openMemory(t, clock), open(t, clock)
			denied := 0
			for batch := range 700 {
				clock.Add(r.Int64N([]int64{20, 200, 3000}[batch/70%5/2]))
				var requests [][]window.Charge
				for size := 1 + r.IntN(50); len(requests) < size; {
					c := charge("z", string(rune('a'+batch/350*3+r.IntN(3))), 30, 2*time.Second)
					if r.IntN(2) == 0 {
						c = charge("large", "", 1000, 2*time.Second)
					}
					c.Algorithm, c.Pack = v.algo, v.pack
					for range 1 + r.IntN(12) {
						switch r.IntN(20) {
						case 0:
							c.Policies = []window.Policy{{Limit: 30 + r.Int64N(2), Window: 2 * time.Second}}
						case 1:
							c.Policies = []window.Policy{{Limit: 400, Window: 2 * time.Second}}
						case 2:
							c.Policies = []window.Policy{{Limit: 30, Window: 2 * time.Second}, {Limit: 200, Window: 4 * time.Second}}
						case 3:
							c.Policies = []window.Policy{{Limit: 400, Window: 4 * time.Second}}
						}
						c.Cost = 1
						if r.IntN(20) == 0 {
							c.Cost = r.Int64N(8)
						}
						requests = append(requests, []window.Charge{c})
					}
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
