package windowtest

import (
	"slices"
	"testing"
	"time"

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
		for walk := range 15 {
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
					f.settle(c, at, delta)
					f.settle(plain, at, delta)
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
