package traffic

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// eachShape runs a test on the traffic that the table in bench/RESULTS.md is of.
func eachShape(t *testing.T, test func(t *testing.T, arrivals []Arrival)) {
	for _, s := range Shapes {
		t.Run(s.Name, func(t *testing.T) {
			arrivals := s.Make(Seeded(1))
			if len(arrivals) < Limit || !slices.IsSortedFunc(arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) }) {
				t.Fatalf("%d arrivals, or not in order", len(arrivals))
			}
			test(t, arrivals)
		})
	}
}

// TestExact holds that exact algorithms are never wrong, on any shape.
func TestExact(t *testing.T) {
	eachShape(t, func(t *testing.T, arrivals []Arrival) {
		for _, algo := range []window.Algorithm{
			window.Zset{}, window.Log{}, window.Stream{}, window.Slices{Size: time.Millisecond},
		} {
			a := Judge(algo, arrivals)
			if a.WronglyAllowed != 0 || a.WronglyDenied != 0 || a.Worst != Limit || a.Denied == 0 {
				t.Errorf("%+v: %+v; want nothing wrong, and the whole limit used", algo, a)
			}
		}
	})
}

// TestStrict holds that strict slices are never over the limit, and that layers
// are as accurate as all of their fine slices.
func TestStrict(t *testing.T) {
	eachShape(t, func(t *testing.T, arrivals []Arrival) {
		seconds, layers := window.Slices{}, window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
		for _, algo := range []window.Algorithm{
			seconds, layers,
			window.Slices{Count: 1},
			window.Slices{Size: 100 * time.Millisecond},
			window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second},
		} {
			if a := Judge(algo, arrivals); a.WronglyAllowed != 0 || a.Worst != Limit {
				t.Errorf("%+v: %+v; want nothing wrongly allowed, and the whole limit used", algo, a)
			}
		}
		if fine, both := Judge(seconds, arrivals), Judge(layers, arrivals); both != fine {
			t.Errorf("%+v: %+v; want what %+v has: %+v", layers, both, seconds, fine)
		}
	})
}

// TestOver holds that the oracle sees what is wrong, and that those who may be over
// the limit keep to their bounds.
func TestOver(t *testing.T) {
	for _, algo := range []window.Algorithm{window.Slices{Weighted: true}, window.Slices{Count: 1, Weighted: true}, window.GCRA{}} {
		var all Accuracy
		eachShape(t, func(t *testing.T, arrivals []Arrival) {
			a := Judge(algo, arrivals)
			if a.Worst > 2*Limit-1 {
				t.Errorf("%+v: %+v; want %d in a window at most", algo, a, 2*Limit-1)
			}
			all.WronglyAllowed += a.WronglyAllowed
			all.Worst = max(all.Worst, a.Worst)
		})
		if all.WronglyAllowed == 0 || all.Worst <= Limit {
			t.Errorf("%+v: %+v; want some wrongly allowed", algo, all)
		}
	}
}
