package windowtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// testAdaptiveSwitches drives the load up and down until adaptive slices have
// changed their length a thousand times.
func testAdaptiveSwitches(t *testing.T, open Open) {
	algo := window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	f := newFixture(t, open, algo)
	policy := per(120, 20_000)
	r, name := random(0)
	var admitted Log
	lengths := make(map[time.Duration]int)
	last, switches, denials := algo.Max, 0, 0
	for step := 0; switches < 1_000 && step < 100_000; step++ {
		if step/300%3 == 0 {
			f.clock.Add(r.Int64N(3_000))
		} else {
			f.clock.Add(r.Int64N(200))
		}
		c := f.charge("switches", "key", 1+r.Int64N(2), policy)
		d := f.takeStrict(fmt.Sprintf("%s, step %d", name, step), c, &admitted)[0]
		if !d.Allowed {
			denials++
			continue
		}
		if length := adaptiveLength(algo, policy, d.Remaining); length != last {
			last = length
			switches++
		}
		lengths[last]++
		admitted.Forget(f.clock.Now() - 30_000)
	}
	if switches < 1_000 || denials < 100 || len(lengths) != 6 {
		t.Errorf("%d switches, %d denials, slices of %v; want 1000, 100 and 6 lengths", switches, denials, lengths)
	}
	t.Logf("%d switches, %d denials, slices of %v", switches, denials, lengths)
}

// adaptiveLength says how long the slices are of a limit of which some remains.
func adaptiveLength(a window.Slices, p window.Policy, remaining int64) time.Duration {
	length := a.Max
	for share := float64(remaining) / float64(p.Limit); share <= 0.5 && length > a.Min; share *= 2 {
		length = max(a.Min, length/2)
	}
	return length
}
