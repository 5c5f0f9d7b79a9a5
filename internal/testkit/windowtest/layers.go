package windowtest

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// testLayersAreFine takes every step twice, with layers and with slices of the
// fine length: every field of every decision is the same, though windows change
// and are no multiples of the lengths.
func testLayersAreFine(t *testing.T, open Open) {
	for _, layers := range []window.Layers{
		{Coarse: 5 * time.Second, Fine: 500 * time.Millisecond},
		{Coarse: 4900 * time.Millisecond, Fine: 700 * time.Millisecond},
		{Coarse: time.Second, Fine: time.Second},
	} {
		f := newFixture(t, open, layers)
		denials := 0
		for walk := range rounds(15) {
			r, name := random(walk)
			policies := randomPolicies(r)
			spent := []int64{Start}
			for step := range 400 {
				f.clock.Add(r.Int64N(1 + r.Int64N(3_000)))
				switch r.IntN(60) {
				case 0:
					f.clock.Add(r.Int64N(100_000))
				case 1, 2, 3:
					policies = randomPolicies(r)
				}
				c := f.charge("layers", name, randomCost(r), policies...)
				plain := c
				plain.Algorithm = window.Slices{Size: layers.Fine}
				switch r.IntN(20) {
				case 0:
					at, delta := spent[max(0, len(spent)-1-r.IntN(10))], r.Int64N(12)-8
					for _, c := range []window.Charge{c, plain} {
						if err := engine.Settle(f.Context(), f.store, c, at, delta); err != nil {
							f.Fatal(err)
						}
					}
				case 1:
					if got, want := f.peek(c), f.peek(plain); !slices.Equal(got, want) {
						f.Fatalf("%s, step %d, %+v: Peek(%v) = %+v, want %+v", name, step, layers, c, got, want)
					}
				default:
					got, want := f.take(c), f.take(plain)
					if !slices.Equal(got, want) {
						f.Fatalf("%s, step %d, %+v: Take(%v) = %+v, want %+v", name, step, layers, c, got, want)
					}
					if window.Allowed(got) {
						spent = append(spent, got[0].At)
					} else {
						denials++
					}
				}
			}
		}
		f.Logf("%+v: %d denials", layers, denials)
	}
}

// testManyLayers has more slices than a script can write in one call, and writes
// them all anew when their length changes.
func testManyLayers(t *testing.T, open Open) {
	const n = 4_500
	layers := window.Layers{Coarse: 100 * time.Millisecond, Fine: time.Millisecond}
	f := newFixture(t, open, layers)
	c := f.charge("many", "key", 1, per(10_000, 10_000))
	for range n {
		f.clock.Add(2)
		f.take(c)
	}
	c.Algorithm = window.Layers{Coarse: 100 * time.Millisecond, Fine: 2 * time.Millisecond}
	for k := range int64(2) {
		if d := f.take(c)[0]; d.Remaining != 10_000-n-k-1 || d.ResetAfter != 10*time.Second {
			t.Errorf("after the change: Take = %+v, want %d remaining", d, 10_000-n-k-1)
		}
	}
	f.clock.Add(10_000 - 2*n + 2) // the first has left
	f.wantRemaining(c, 10_000-n-2+1)
}
