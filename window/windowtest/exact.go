package windowtest

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func testZsetExact(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Zset{}))
}

func testLogExact(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Log{}))
}

func testMillisecondSlices(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Slices{Size: time.Millisecond}))
}

func testMillisecondLayers(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Layers{Coarse: 500 * time.Millisecond, Fine: time.Millisecond}))
}

// testExact compares every field of every decision with those of a Log that
// is only looked at from one end to the other.
func testExact(f *fixture) {
	for walk := range 40 {
		r, name := random(walk)
		logs := map[string]*Log{}
		longest := per(0, 30_000+r.Int64N(30_000))
		for step := range 250 {
			f.clock.Add(r.Int64N(1 + r.Int64N(3_000)))
			now := f.clock.Now()
			var charges []window.Charge
			for z := range 1 + r.IntN(2) {
				// One window is the longest throughout: a shorter one would forget.
				policies := append(randomPolicies(r), window.Policy{Limit: r.Int64N(30), Window: longest.Window})
				for i := range policies {
					policies[i].Window = min(policies[i].Window, longest.Window)
				}
				charges = append(charges, f.charge(name+string(rune('0'+z)), string(rune('a'+r.IntN(2))), randomCost(r), policies...))
			}
			own := make([]*Log, len(charges))
			for i, c := range charges {
				if own[i] = logs[c.Zone+c.Key]; own[i] == nil {
					own[i] = new(Log)
					logs[c.Zone+c.Key] = own[i]
				}
			}
			switch r.IntN(12) {
			case 0:
				if err := f.store.Reset(f.Context(), charges[0]); err != nil {
					f.Fatal(err)
				}
				*own[0] = nil
			case 1:
				delta := r.Int64N(4)
				f.settle(charges[0], now, delta)
				own[0].Spend(now, delta)
			case 2:
				at, n := now-r.Int64N(2_000), r.Int64N(3)
				if len(*own[0]) > 0 {
					at = (*own[0])[r.IntN(len(*own[0]))]
				}
				f.settle(charges[0], at, -n)
				own[0].GiveBack(at, n)
			case 3:
				if got, want := f.peek(charges...), Expect(now, charges, own, false); !slices.Equal(got, want) {
					f.Fatalf("%s, step %d: Peek(%v) = %+v, want %+v", name, step, charges, got, want)
				}
			default:
				if got, want := f.take(charges...), Expect(now, charges, own, true); !slices.Equal(got, want) {
					f.Fatalf("%s, step %d: Take(%v) = %+v, want %+v", name, step, charges, got, want)
				}
			}
		}
	}
}
