package windowtest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func testStreamExact(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Stream{}))
	testExact(newFixture(t, open, window.Stream{Keep: time.Hour}))
}

// testStreamAsZset puts the same requests to both on a clock that does not step
// back, with policies that change: every field of every decision is the same.
func testStreamAsZset(t *testing.T, open Open) {
	for _, stream := range []window.Stream{{}, {Keep: 20 * time.Second}, {Keep: time.Hour}} {
		f := newFixture(t, open, window.Zset{})
		for walk := range rounds(15) {
			r, name := random(walk)
			for step, charges := range f.randomRequests(r, 300) {
				f.clock.Add(r.Int64N(1 + r.Int64N(3_000)))
				twins := slices.Clone(charges)
				for i := range twins {
					twins[i].Algorithm = stream
					twins[i].Fields = []string{"step", string(rune('a' + step%26))}
				}
				want := f.anyCall(rand.New(rand.NewPCG(uint64(walk), uint64(step))), charges)
				got := f.anyCall(rand.New(rand.NewPCG(uint64(walk), uint64(step))), twins)
				if !slices.Equal(got, want) {
					f.Fatalf("%s, step %d at %d: %v: %+v, but %v: %+v", name, step, f.clock.Now(), twins, got, charges, want)
				}
			}
			f.clock.Add(1_000_000)
		}
	}
}

func (f *fixture) anyCall(r *rand.Rand, charges []window.Charge) []window.Decision {
	f.Helper()
	switch n := r.IntN(20); {
	case n < 2:
		return f.peek(charges...)
	case n < 3:
		f.chargeMore(charges[0], 1+r.Int64N(3))
	case n < 6:
		f.giveBack(charges[0], f.clock.Now()-r.Int64N(1+r.Int64N(2_000)), 1+r.Int64N(5))
	default:
		return f.take(charges...)
	}
	return f.peek(charges...)
}
