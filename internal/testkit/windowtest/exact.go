package windowtest

import (
	"fmt"
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
	for walk := range rounds(40) {
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
				units := r.Int64N(4)
				f.chargeMore(charges[0], units)
				own[0].Spend(now, units)
			case 2:
				at, n := now-r.Int64N(2_000), r.Int64N(3)
				if len(*own[0]) > 0 {
					at = (*own[0])[r.IntN(len(*own[0]))]
				}
				f.giveBack(charges[0], at, n)
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

// testLogEdges spends where a log needs one more byte for a gap or for units, and
// compares every field of every decision with those of zset.
func testLogEdges(t *testing.T, open Open) {
	const n = 30
	f := newFixture(t, open, window.Log{})
	for _, gap := range []int64{1, 63, 64, 8_191, 8_192, 1_048_575, 1_048_576} {
		for _, units := range []int64{1, 2, 127, 128, 255, 256} {
			for i := range int64(n) {
				f.clock.Add(gap)
				// The first window is long enough for keys to outlive the test.
				c := f.charge("edges", fmt.Sprint(gap, " ", units), units, per(n*units, n*gap+3_600_000), per(n*units, (i+1)*gap))
				twin := c
				twin.Algorithm = window.Zset{}
				if got, want := f.take(c), f.take(twin); !slices.Equal(got, want) || !window.Allowed(got) {
					t.Fatalf("gap %d, request %d: Take(%v) = %+v, want %+v", gap, i, c, got, want)
				}
				for back := int64(1); i == n-1 && back < n; back++ {
					c.Policies[1] = per(n*units, back*gap) // twin has the same slice
					if got, want := f.peek(c), f.peek(twin); !slices.Equal(got, want) {
						t.Fatalf("gap %d: Peek(%v) = %+v, want %+v", gap, c, got, want)
					}
				}
			}
		}
	}
}

// testClockBackOnto steps the clock back to the very millisecond of a unit: what was
// spent later counts there, too, and what was spent before keeps its time.
func testClockBackOnto(t *testing.T, open Open) {
	for _, algo := range []window.Algorithm{window.Zset{}, window.Log{}, window.Stream{}} {
		f := newFixture(t, open, algo)
		f.clock.Add(24 * 3_600_000)
		c := f.charge("zone", "key", 1, per(4, 10_000))
		start := f.clock.Now()
		for _, at := range []int64{0, 500, 500, 2_000} {
			f.clock.Set(start + at)
			f.take(c)
		}
		for range 2 { // the first denial may correct the history
			f.clock.Set(start + 500)
			if d := f.take(c)[0]; d.Allowed || d.RetryAfter != 9_500*time.Millisecond || d.ResetAfter != 10*time.Second {
				t.Errorf("%s: Take = %+v, want a wait of 9.5s and a reset after 10s", algo.Name(), d)
			}
		}
		f.clock.Set(start + 10_000)
		if d := f.take(c)[0]; !d.Allowed || d.Remaining != 0 || d.EffectiveWindow != 500*time.Millisecond {
			t.Errorf("%s: Take = %+v a window after the first unit, want none remaining for 500ms", algo.Name(), d)
		}
	}
}
