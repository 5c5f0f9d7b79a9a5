package windowtest

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// step takes cost at a time after Start, in ms, under the policies of the last
// step that has some.
type step struct {
	at       int64
	cost     int64
	want     []verdict // one per policy
	policies []window.Policy
}

type verdict struct {
	allowed   bool
	remaining int64
	retry     time.Duration
}

func allowed(remaining int64) verdict { return verdict{true, remaining, 0} }

func denied(remaining, retryMillis int64) verdict {
	return verdict{false, remaining, time.Duration(retryMillis) * time.Millisecond}
}

func never(remaining int64) verdict { return verdict{false, remaining, window.Never} }

func testTables(t *testing.T, open Open) {
	for _, table := range tables {
		t.Run(table.name, func(t *testing.T) {
			run := func(f *fixture) { f.run(table.steps) }
			switch table.needs {
			case nothing:
				each(t, open, run)
			case windows:
				eachOfWindows(t, open, run)
			case seconds:
				eachOfSeconds(t, open, run)
			case milliseconds:
				run(newFixture(t, open, window.Zset{}))
				run(newFixture(t, open, window.Log{}))
				run(newFixture(t, open, window.Slices{Size: time.Millisecond}))
			}
		})
	}
}

func (f *fixture) run(steps []step) {
	var policies []window.Policy
	for i, s := range steps {
		if s.policies != nil {
			policies = s.policies
		}
		f.clock.Set(Start + s.at)
		ds := f.take(f.charge("zone", "key", s.cost, policies...))
		for j, want := range s.want {
			d := ds[j]
			if got := (verdict{d.Allowed, d.Remaining, d.RetryAfter}); got != want || d.Limit != policies[j].AtOnce(f.algo) || d.At != Start+s.at {
				f.Errorf("step %d, policy %d: Take(cost %d) at %d = %+v, want %+v", i, j, s.cost, s.at, d, want)
			}
		}
	}
}

// Features of an algorithm that a table needs.
const (
	nothing = iota
	windows
	seconds
	milliseconds
)

var tables = []struct {
	name  string
	needs int
	steps []step
}{
	{"the edge of the window", windows, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(2, 10_000)}},
		1: {0, 1, []verdict{allowed(0)}, nil},
		2: {0, 1, []verdict{denied(0, 10_000)}, nil},
		3: {9_999, 1, []verdict{denied(0, 1)}, nil},
		4: {10_000, 2, []verdict{allowed(0)}, nil},
		5: {19_999, 1, []verdict{denied(0, 1)}, nil},
		6: {20_000, 1, []verdict{allowed(1)}, nil},
	}},
	{"the last millisecond of the window", seconds, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(2, 10_000)}},
		1: {9_999, 1, []verdict{allowed(0)}, nil},
		2: {9_999, 1, []verdict{denied(0, 1)}, nil},
		3: {10_000, 1, []verdict{allowed(0)}, nil},
	}},
	{"the edge of a short window", milliseconds, []step{
		0: {0, 1, []verdict{allowed(1)}, []window.Policy{per(2, 5_000)}},
		1: {1, 1, []verdict{allowed(0)}, nil},
		2: {2, 1, []verdict{denied(0, 4_998)}, nil},
		3: {2, 2, []verdict{denied(0, 4_999)}, nil},
		4: {4_999, 1, []verdict{denied(0, 1)}, nil},
		5: {5_000, 1, []verdict{allowed(0)}, nil},
		6: {5_000, 1, []verdict{denied(0, 1)}, nil},
		7: {5_001, 1, []verdict{allowed(0)}, nil},
		8: {5_001, 2, []verdict{denied(0, 5_000)}, nil},
	}},
	{"several limits", windows, []step{
		0: {0, 2, []verdict{allowed(0), allowed(1)}, []window.Policy{per(2, 10_000), per(3, 60_000)}},
		1: {0, 1, []verdict{denied(0, 10_000), allowed(1)}, nil},
		2: {9_999, 1, []verdict{denied(0, 1), allowed(1)}, nil},
		3: {10_000, 2, []verdict{allowed(2), denied(1, 50_000)}, nil},
		4: {10_000, 1, []verdict{allowed(1), allowed(0)}, nil},
		5: {20_000, 1, []verdict{allowed(2), denied(0, 40_000)}, nil},
		6: {59_999, 3, []verdict{never(2), denied(0, 10_001)}, nil},
		7: {60_000, 2, []verdict{allowed(0), allowed(0)}, nil},
	}},
	{"costs", seconds, []step{
		0: {0, 3, []verdict{allowed(2)}, []window.Policy{per(5, 10_000)}},
		// More than remains is refused, and nothing is charged.
		1: {0, 3, []verdict{denied(2, 10_000)}, nil},
		2: {5_000, 2, []verdict{allowed(0)}, nil},
		// More than the limit can never pass.
		3: {5_000, 6, []verdict{never(0)}, nil},
		4: {5_000, 1 << 62, []verdict{never(0)}, nil},
		5: {10_000, 3, []verdict{allowed(0)}, nil},
		6: {10_000, 2, []verdict{denied(0, 5_000)}, nil},
		7: {10_000, 3, []verdict{denied(0, 10_000)}, nil},
	}},
	{"cost 0 looks", nothing, []step{
		0: {0, 0, []verdict{allowed(1)}, []window.Policy{per(1, 10_000)}},
		1: {0, 1, []verdict{allowed(0)}, nil},
		2: {0, 0, []verdict{allowed(0)}, nil},
		3: {9_999, 0, []verdict{allowed(0)}, nil},
		4: {10_000, 0, []verdict{allowed(1)}, nil},
	}},
	{"limit 0", nothing, []step{
		0: {0, 1, []verdict{never(0)}, []window.Policy{per(0, 10_000)}},
		1: {0, 0, []verdict{allowed(0)}, nil},
		2: {0, 1, []verdict{never(0), allowed(1)}, []window.Policy{per(0, 10_000), per(1, 10_000)}},
		3: {0, 1, []verdict{allowed(0)}, []window.Policy{per(1, 10_000)}},
		4: {0, 1, []verdict{never(0)}, []window.Policy{per(0, 10_000)}},
		5: {1, 1, []verdict{denied(0, 9_999)}, []window.Policy{per(1, 10_000)}},
	}},
	{"a changed limit", seconds, []step{
		0: {0, 4, []verdict{allowed(1)}, []window.Policy{per(5, 10_000)}},
		1: {0, 2, []verdict{denied(0, 10_000)}, []window.Policy{per(3, 10_000)}},
		2: {5_000, 1, []verdict{allowed(1)}, []window.Policy{per(6, 10_000)}},
		3: {5_000, 1, []verdict{denied(0, 5_000)}, []window.Policy{per(2, 10_000)}},
		4: {5_000, 2, []verdict{denied(0, 10_000)}, nil},
		5: {9_999, 1, []verdict{allowed(94)}, []window.Policy{per(100, 10_000)}},
	}},
	{"a changed window", windows, []step{
		0: {0, 2, []verdict{allowed(0)}, []window.Policy{per(2, 10_000)}},
		1: {6_000, 3, []verdict{never(2)}, []window.Policy{per(2, 5_000)}},
		// A denial under a shorter window has forgotten nothing, ...
		2: {6_000, 1, []verdict{denied(0, 4_000)}, []window.Policy{per(2, 10_000)}},
		3: {6_000, 1, []verdict{allowed(1)}, []window.Policy{per(2, 5_000)}},
		// ... and neither has a charge under it, as long as the longer window needs its units.
		4: {6_000, 2, []verdict{denied(0, 10_000)}, []window.Policy{per(2, 10_000)}},
		5: {11_000, 2, []verdict{denied(0, 55_000)}, []window.Policy{per(2, 60_000)}},
		// That was until 10_000: a charge after that forgets them.
		6: {12_000, 1, []verdict{allowed(1)}, []window.Policy{per(2, 5_000)}},
		7: {12_000, 1, []verdict{allowed(0)}, []window.Policy{per(2, 60_000)}},
	}},
}

// MaxPackedSlices is the highest Slices.Count whose counters can be packed.
const MaxPackedSlices = 3
