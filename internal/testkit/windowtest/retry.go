package windowtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// denialsEach is how many denials of each algorithm testRetryAfter looks at.
const denialsEach = 2_500

// testRetryAfter moves the clock after each denial to the millisecond before
// RetryAfter, where the same charges still have to be denied, and on to it, where
// they have to pass.
func testRetryAfter(t *testing.T, open Open) {
	run := func(f *fixture) {
		denials, enough := 0, rounds(denialsEach)
		for walk := range 100 {
			if denials >= enough {
				break
			}
			r, name := random(walk)
			for _, charges := range f.randomRequests(r, 400) {
				f.clock.Add(r.Int64N(1_000))
				ds := f.take(charges...)
				if window.Allowed(ds) {
					continue
				}
				denials++
				f.checkRetryAfter(name, charges, ds)
			}
		}
		if f.Logf("%d denials", denials); denials < enough {
			f.Errorf("%d denials, want %d", denials, enough)
		}
	}
	each(t, open, run)
	for _, burst := range []int64{1, 3, 25} {
		t.Run(fmt.Sprintf("gcra, burst %d", burst), func(t *testing.T) { run(newFixture(t, open, window.GCRA{Burst: burst})) })
	}
}

func (f *fixture) checkRetryAfter(name string, charges []window.Charge, ds []window.Decision) {
	f.Helper()
	now := f.clock.Now()
	defer f.clock.Set(now)
	var wait time.Duration
	for _, d := range ds {
		wait = max(wait, d.RetryAfter)
		if d.Allowed != (d.RetryAfter == 0) {
			f.Errorf("%s: Take(%v) = %+v: a wait means a denial", name, charges, ds)
		}
	}
	if wait == window.Never {
		f.clock.Set(now + 1_000_000)
		if window.Allowed(f.peek(charges...)) {
			f.Errorf("%s: Take(%v) = %+v, but it passes later", name, charges, ds)
		}
		return
	}
	f.clock.Set(now + wait.Milliseconds() - 1)
	if window.Allowed(f.peek(charges...)) {
		f.Errorf("%s: Take(%v) = %+v, but it passes after %s - 1ms", name, charges, ds, wait)
	}
	f.clock.Set(now + wait.Milliseconds())
	if got := f.peek(charges...); !window.Allowed(got) {
		f.Errorf("%s: Take(%v) = %+v, but after %s it is %+v", name, charges, ds, wait, got)
	}
}

// randomRequests returns requests on a few counters: one or two zones each, one
// to three limits per zone that change now and then, costs from 0 to above the
// limit.
func (f *fixture) randomRequests(r *rand.Rand, n int) [][]window.Charge {
	zones := [][]window.Policy{randomPolicies(r), randomPolicies(r)}
	prefix := string(rune('a' + r.IntN(26)))
	requests := make([][]window.Charge, n)
	for i := range requests {
		first := r.IntN(2)
		for k := range 1 + r.IntN(2) {
			z := (first + k) % 2
			if r.IntN(50) == 0 {
				zones[z] = randomPolicies(r)
			}
			key := string(rune('a' + r.IntN(2)))
			requests[i] = append(requests[i], f.charge(prefix+string(rune('0'+z)), key, randomCost(r), zones[z]...))
		}
	}
	return requests
}

func randomPolicies(r *rand.Rand) []window.Policy {
	policies := make([]window.Policy, 1+r.IntN(3))
	for i := range policies {
		policies[i] = per(r.Int64N(20), 5_000+r.Int64N(3)*r.Int64N(20_000))
	}
	return policies
}

func randomCost(r *rand.Rand) int64 {
	switch r.IntN(10) {
	case 0:
		return r.Int64N(25)
	case 1, 2, 3:
		return 1 + r.Int64N(4)
	default:
		return 1
	}
}
