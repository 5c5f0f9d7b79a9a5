package lint

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// A limit dominates another one exactly if the engine never denies by the other one alone, whatever requests come. Those that
// come as soon as they may are the worst.
func TestDominates(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	dominated := 0
	for n := range 1000 {
		policies := make([]window.Policy, 2)
		for i := range policies {
			policies[i] = window.Policy{Limit: random.Int64N(9), Window: time.Duration(1+random.IntN(20)) * time.Millisecond}
		}
		if policies[0].Window == policies[1].Window {
			continue
		}
		algorithm := []window.Algorithm{window.Zset{}, window.Log{}, window.Stream{}}[n%3]
		now := int64(1_000_000)
		store := memory.New(memory.Options{Now: func() int64 { return now }})
		alone := false
		for range 300 {
			if random.IntN(10) == 0 && n%2 == 0 {
				now++
				continue // nothing comes in this millisecond
			}
			for range 12 {
				ds, err := store.Take(t.Context(), []window.Charge{{Zone: "z", Key: "k", Cost: 1 + random.Int64N(2), Algorithm: algorithm, Policies: policies}})
				if err != nil {
					t.Fatal(err)
				}
				alone = alone || ds[0].Allowed && !ds[1].Allowed
			}
			now++
		}
		_ = store.Close()
		got := dominates(policies[0], policies[1])
		if got {
			dominated++
		}
		if got && alone {
			t.Errorf("%s: %v dominates %v, but the engine denied by the second alone", algorithm.Name(), policies[0], policies[1])
		}
	}
	if dominated < 100 {
		t.Errorf("only %d of 1000 pairs are dominated", dominated)
	}
}

// A limit that is not dominated is reached first at some time.
func TestNotDominated(t *testing.T) {
	for limit := range int64(5) {
		for a := 1; a < 9; a++ {
			for other := range int64(20) {
				for b := 1; b < 15; b++ {
					first := window.Policy{Limit: limit, Window: time.Duration(a) * time.Millisecond}
					second := window.Policy{Limit: other, Window: time.Duration(b) * time.Millisecond}
					if a == b {
						continue
					}
					// The first limit alone lets its units pass at the beginning of each window.
					most := int64(0)
					for at := 0; at < b; at += a {
						most += limit
					}
					if got, want := dominates(first, second), most <= other; got != want {
						t.Errorf("dominates(%v, %v) = %v, want %v", first, second, got, want)
					}
				}
			}
		}
	}
}
