package windowtest

import (
	"math/rand/v2"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// spent is what a request spent: under one of the policies of a test, which has the index by.
type spent struct {
	at, units int64
	by        int
}

// inWindow returns how many units of a log were spent in a window, from the entry first on.
func inWindow(log []spent, first int, now, ms int64, counts func(spent) bool) (n int64) {
	for _, s := range log[first:] {
		if s.at > now-ms && counts(s) {
			n += s.units
		}
	}
	return n
}

func all(spent) bool { return true }

// someBack gives some units of s back, and returns how many.
func (f *fixture) someBack(r *rand.Rand, c window.Charge, s *spent) int64 {
	back := min(s.units, 1+r.Int64N(3))
	f.giveBack(c, s.at, back)
	s.units -= back
	return back
}

// mixedGCRA returns options for a test of requests that differ.
func mixedGCRA(r *rand.Rand) window.GCRA {
	if r.IntN(2) == 0 {
		return window.GCRA{}
	}
	return window.GCRA{Burst: 1 + r.Int64N(40)}
}

// testGCRALimitsDiffer lets requests on one counter have one of several limits, or one of
// several bursts: in no window do more pass than the highest of each allow.
func testGCRALimitsDiffer(t *testing.T, open Open) {
	passed, denials, late, most := 0, 0, 0, 0.0
	for walk := range rounds(20) {
		r, name := random(walk)
		f := newFixture(t, open, nil)
		algos := []window.GCRA{mixedGCRA(r), mixedGCRA(r)}
		if walk%4 > 0 {
			algos = algos[:1]
		}
		ms := 1_000 + r.Int64N(10_000)
		var limits []int64
		var limit, burst int64 // the highest
		for range 2 + r.IntN(2) {
			l := 1 + r.Int64N(1+r.Int64N(60))
			limits = append(limits, l)
			limit = max(limit, l)
			for _, a := range algos {
				burst = max(burst, per(l, ms).AtOnce(a))
			}
		}
		var log []spent
		var last window.Charge // what was admitted last, at the end of the log
		freed := []spent{}     // what was given back after others had been admitted
		i := 0
		for step := range 500 {
			f.clock.Add(r.Int64N(1 + r.Int64N(1+ms/10)))
			if r.IntN(4) == 0 {
				i = r.IntN(len(limits))
			}
			now := f.clock.Now()
			c := window.Charge{
				Zone: "differ", Key: name, Cost: 1 + r.Int64N(1+r.Int64N(8)),
				Policies: []window.Policy{per(limits[i], ms)}, Algorithm: algos[r.IntN(len(algos))],
			}
			switch n := r.IntN(20); {
			case n == 0 && len(log) > 0: // at once, as in a cluster, or later
				f.someBack(r, last, &log[len(log)-1])
			case n == 1 && len(log) > 1:
				s := &log[len(log)-2]
				c.Policies = []window.Policy{per(limits[s.by], ms)}
				freed = append(freed, spent{now, f.someBack(r, c, s), s.by})
				late++
			case n == 2:
				f.peek(c)
			default:
				if !f.take(c)[0].Allowed {
					denials++
					continue
				}
				passed++
				log, last = append(log, spent{now, c.Cost, i}), c
				// Units that are given back late may already have leaked under a higher limit.
				bound := burst + limit - 1 + inWindow(freed, 0, now, 2*ms, all)
				n := inWindow(log, 0, now, ms, all)
				if n > bound {
					f.Fatalf("%s, step %d, %+v, limits %v in %d ms: %d units in one window, want %d at most", name, step, algos, limits, ms, n, bound)
				}
				most = max(most, float64(n)/float64(burst+limit-1))
			}
		}
	}
	if passed < rounds(2_000) || denials < rounds(2_000) {
		t.Errorf("%d passed, and %d denials", passed, denials)
	}
	t.Logf("%d passed, %d denials, %d given back late, at most %.2f of the bound", passed, denials, late, most)
}

// testGCRALimitIsLowered lets a lower limit pass as often as it can, and a higher one in
// between: as in two configurations that share a counter, or with a limit that a reload
// lowers and raises again and again.
func testGCRALimitIsLowered(t *testing.T, open Open) {
	for _, low := range []int64{1, 50, 99} {
		lowered(newFixture(t, open, window.GCRA{}), low, 250)
		f := newFixture(t, open, window.GCRA{})
		lower := lowered(f, low, 40)
		// Alone, the lower one is denied for one window, and the time that a unit takes.
		start := f.clock.Now()
		for !f.take(lower)[0].Allowed {
			f.clock.Add(10)
		}
		if waited := f.clock.Now() - start; waited > 10_000+10_000/low {
			t.Errorf("a limit of %d was denied for %d ms after one of 100", low, waited)
		}
	}
}

// lowered is testGCRALimitIsLowered with steps of some ms. It returns the charge of the lower
// limit.
func lowered(f *fixture, low, ms int64) window.Charge {
	high := f.charge("lowered", "key", 1, per(100, 10_000))
	lower := f.charge("lowered", "key", 1, per(low, 10_000))
	var log []spent
	most := int64(0)
	for range max(12_000/int(ms), rounds(60_000/int(ms))) { // longer than the window
		for _, c := range []window.Charge{lower, high} {
			for f.take(c)[0].Allowed {
				log = append(log, spent{f.clock.Now(), 1, 0})
			}
		}
		most = max(most, inWindow(log, 0, f.clock.Now(), 10_000, all))
		f.clock.Add(ms)
	}
	if most < 190 || most > 199 {
		f.Errorf("with a limit of %d beside it, %d units passed in one window, want 199 at most", low, most)
	}
	return lower
}

// testGCRAWindowsDiffer lets requests on one counter have one of several windows. What passes
// under each keeps to its promise, and so does what passes under any since its bucket began.
func testGCRAWindowsDiffer(t *testing.T, open Open) {
	passed, denials, most := 0, 0, 0.0
	for walk := range rounds(20) {
		r, name := random(walk)
		algo := mixedGCRA(r)
		f := newFixture(t, open, algo)
		var policies []window.Policy
		for _, ms := range []int64{1_000, 7_000, 60_000, 600_000}[:2+r.IntN(3)] {
			policies = append(policies, per(1+r.Int64N(1+r.Int64N(60)), ms))
		}
		var log []spent
		var last window.Charge
		began, used := make([]int, len(policies)), make([]int64, len(policies)) // -1: there is no bucket
		for k := range began {
			began[k] = -1
		}
		i := 0
		for step := range 500 {
			f.clock.Add(r.Int64N(1 + r.Int64N(1+r.Int64N(4_000))))
			if r.IntN(3) == 0 {
				i = r.IntN(len(policies))
			}
			now, p := f.clock.Now(), policies[i]
			c := f.charge("windows", name, 1+r.Int64N(1+r.Int64N(8)), p)
			if r.IntN(20) == 0 && len(log) > 0 {
				f.someBack(r, last, &log[len(log)-1])
				continue
			}
			if !f.take(c)[0].Allowed {
				denials++
				continue
			}
			passed++
			log, last = append(log, spent{now, c.Cost, i}), c
			for k, other := range policies {
				if k != i && now-used[k] >= other.Window.Milliseconds() {
					began[k] = -1 // it may not have been kept
				}
			}
			used[i] = now
			if began[i] < 0 {
				began[i] = len(log) - 1
			}
			bound := int64(gcraBound(algo, p))
			own := inWindow(log, 0, now, p.Window.Milliseconds(), func(s spent) bool { return s.by == i })
			any := inWindow(log, began[i], now, p.Window.Milliseconds(), all)
			if own > bound || any > bound {
				f.Fatalf("%s, step %d, %+v, %v: under %v %d units in one window, and %d in all, want %d at most", name, step, algo, policies, p, own, any, bound)
			}
			most = max(most, float64(any)/float64(bound))
		}
	}
	if passed < rounds(1_000) || denials < rounds(1_000) {
		t.Errorf("%d passed, and %d denials", passed, denials)
	}
	t.Logf("%d passed, %d denials, at most %.2f of the bound", passed, denials, most)
}

// testGCRAManyWindows uses more windows than are kept: the decisions go on, and the longest
// ones are kept.
func testGCRAManyWindows(t *testing.T, open Open) {
	f := newFixture(t, open, window.GCRA{})
	hour := f.charge("many", "key", 1, per(10, 3_600_000))
	units := int64(0)
	for range rounds(200) {
		for ms := int64(1_000); ms < 40_000; ms += 3_000 {
			f.take(f.charge("many", "key", 1, per(3, ms)))
			if f.take(hour)[0].Allowed {
				units++
			}
			f.clock.Add(100)
		}
	}
	if units > 19 {
		t.Errorf("%d units passed under 10 in 1h, want 19 at most", units)
	}
}
