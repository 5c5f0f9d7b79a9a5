package windowtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// testStrictNeverOver holds strict slices against what they promise: no window
// ever holds more than its limit, and a denial lasts for at most one slice longer
// than it has to.
func testStrictNeverOver(t *testing.T, open Open) {
	for _, algo := range []window.Algorithm{
		window.Slices{},
		window.Slices{Count: 1},
		window.Slices{Count: 7},
		window.Slices{Size: 333 * time.Millisecond},
		window.Slices{Size: time.Minute}, // above the window
		window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second},
		window.Slices{Min: 70 * time.Millisecond, Max: 30 * time.Second},
		window.Layers{Coarse: 5 * time.Second, Fine: time.Second},
		window.Layers{Coarse: 4900 * time.Millisecond, Fine: 70 * time.Millisecond},
	} {
		newFixture(t, open, algo).neverOver()
		if window.CheckPack(algo, 1, 1) == nil {
			newFixture(t, packed(open), algo).neverOver()
		}
	}
}

func (f *fixture) neverOver() {
	for walk := range rounds(10) {
		r, name := random(walk)
		policies := randomPolicies(r)
		var admitted Log
		for step := range 400 {
			f.clock.Add(r.Int64N(1 + r.Int64N(2_000)))
			c := f.charge("strict", name, randomCost(r), policies...)
			f.takeStrict(fmt.Sprintf("%s, step %d", name, step), c, &admitted)
		}
	}
}

// testStrictWorstCase has the unit that leaves first share a slice with one that
// came at its end: a denial lasts for one slice less 1 ms longer than it had to.
func testStrictWorstCase(t *testing.T, open Open) {
	for _, c := range []struct {
		algo        window.Algorithm
		slice, rest int64 // ms: its length; when the rest of the limit is spent
	}{
		{window.Slices{}, 1_000, 2_000},
		{window.Slices{Count: 1}, 60_000, 59_999},
		{window.Slices{Size: 5 * time.Second}, 5_000, 6_000},
		{window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second}, 2_000, 3_000},
		{window.Layers{Coarse: 10 * time.Second, Fine: time.Second}, 1_000, 2_000},
	} {
		f := newFixture(t, open, c.algo)
		one, eight := f.charge("late", "key", 1, per(10, 60_000)), f.charge("late", "key", 8, per(10, 60_000))
		f.take(one)
		f.clock.Set(Start + c.slice - 1)
		f.take(one)
		f.clock.Set(Start + c.rest)
		f.take(eight)
		f.clock.Set(Start + 60_000) // now the first has left
		if d := f.take(one)[0]; d.Allowed || d.RetryAfter != time.Duration(c.slice-1)*time.Millisecond {
			t.Errorf("%+v: Take = %+v, want a wait of %d ms", c.algo, d, c.slice-1)
		}
	}
}

// takeStrict takes a charge with strict slices. Admitted is what was spent on its
// counter before.
func (f *fixture) takeStrict(name string, c window.Charge, admitted *Log) []window.Decision {
	f.Helper()
	now := f.clock.Now()
	ds := f.take(c)
	if window.Allowed(ds) {
		admitted.Spend(now, c.Cost)
	}
	for j, p := range c.Policies {
		if n := admitted.Count(now, p); n > p.Limit {
			f.Fatalf("%s, %+v: %d units in %+v", name, f.algo, n, p)
		}
		wide := window.Policy{Window: p.Window + size(f.algo, p)}
		if n := admitted.Count(now, wide); !ds[j].Allowed && n+c.Cost <= p.Limit {
			f.Fatalf("%s, %+v: Take(%v) = %+v, but there were %d units in %s", name, f.algo, c, ds[j], n, wide.Window)
		}
	}
	return ds
}

// size returns the length of the longest slice that the policy can see.
func size(algo window.Algorithm, p window.Policy) time.Duration {
	if a, ok := algo.(window.Layers); ok {
		return a.Fine
	}
	a := algo.(window.Slices)
	if longest := max(a.Size, a.Max); longest > 0 {
		return min(longest, p.Window)
	}
	count := a.Count
	if count == 0 {
		count = window.DefaultSlices
	}
	ms := (p.Window.Milliseconds() + count - 1) / count
	return time.Duration(ms) * time.Millisecond
}

// testWeightedWorstCase reaches the bound that Slices names for weighted slices,
// 2×Limit-1, whatever their number, and never passes it.
func testWeightedWorstCase(t *testing.T, open Open) {
	for _, count := range []int64{1, 2, 10, 60} {
		f := newFixture(t, open, window.Slices{Count: count, Weighted: true})
		policy, slice := per(10, 60_000), 60_000/count
		one := f.charge("worst", "key", 1, policy)
		var admitted Log
		f.clock.Add(slice - 1) // the last of a slice
		for range policy.Limit {
			f.take(one)
			admitted.Spend(f.clock.Now(), 1)
		}
		end := f.clock.Now() + 60_000
		for f.clock.Set(Start + 60_000); f.clock.Now() < end; {
			if d := f.take(one)[0]; d.Allowed {
				admitted.Spend(f.clock.Now(), 1)
			} else {
				f.clock.Add(max(1, d.RetryAfter.Milliseconds()))
			}
		}
		if n := admitted.Count(end-1, policy); n != 2*policy.Limit-1 {
			t.Errorf("%d slices: %d units in one window, want 2×%d-1", count, n, policy.Limit)
		}
	}
	for _, algo := range []window.Slices{{Count: 1, Weighted: true}, {Count: 10, Weighted: true}, {Weighted: true}} {
		f := newFixture(t, open, algo)
		for walk := range rounds(10) {
			r, name := random(walk)
			policy := per(1+r.Int64N(20), 5_000+r.Int64N(20_000))
			f.atMost(r, name, 2*policy.Limit-1, policy)
		}
	}
}

// testWeightedUnits has more units in a slice than milliseconds.
func testWeightedUnits(t *testing.T, open Open) {
	newFixture(t, open, window.Slices{Count: 1, Weighted: true}).run([]step{
		0: {0, 99_999, []verdict{allowed(1)}, []window.Policy{per(100_000, 5_000)}},
		1: {4_000, 1, []verdict{allowed(0)}, nil},
		2: {4_999, 1, []verdict{denied(0, 1)}, nil},
		// A millisecond of 5000, and with it 20 units of 100,000, has left.
		3: {5_000, 21, []verdict{denied(20, 1)}, nil},
		4: {5_000, 20, []verdict{allowed(0)}, nil},
		5: {5_000, 20, []verdict{denied(0, 1)}, nil},
		6: {5_000, 50, []verdict{denied(0, 3)}, nil},
		7: {5_003, 50, []verdict{allowed(10)}, nil},
	})
}

// testManySlices fills more slices than Redis keeps in order. Each begins with
// the units that it holds, so that nothing is approximate.
func testManySlices(t *testing.T, open Open) {
	f := newFixture(t, open, window.Slices{Count: 700})
	log := []*Log{new(Log)}
	for step := range 1_000 {
		f.clock.Add(100)
		now := f.clock.Now()
		charges := []window.Charge{f.charge("zone", "key", 1, per(600, 70_000))}
		if step%37 > 0 {
			if f.take(charges...)[0].Allowed {
				log[0].Spend(now, 1)
			}
		} else if got, want := f.take(charges...), Expect(now, charges, log, true); !slices.Equal(got, want) {
			t.Fatalf("step %d: Take(%v) = %+v, want %+v", step, charges, got, want)
		}
	}
}
