package windowtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// holding returns a charge that holds a unit of a counter.
func holding(key string, limit int64) window.Charge {
	return window.Charge{
		Zone: "held", Key: key, Cost: 1, Algorithm: window.Concurrent{},
		Policies: []window.Policy{{Limit: limit, Window: 15 * time.Second}},
	}
}

// testHeldTables has the decisions on units that are held, step by step.
func testHeldTables(t *testing.T, open Open) {
	clock := NewClock()
	s, ctx := open(t, clock), context.Background()
	want := func(step string, got window.Decision, allowed bool, limit, remaining int64, retry time.Duration) {
		t.Helper()
		if d := (window.Decision{Allowed: allowed, Limit: limit, Remaining: remaining, RetryAfter: retry, At: clock.Now()}); got != d {
			t.Errorf("%s: %+v, want %+v", step, got, d)
		}
	}
	take := func(c window.Charge) window.Decision {
		t.Helper()
		ds, err := s.Take(ctx, []window.Charge{c})
		if err != nil {
			t.Fatal(err)
		}
		return ds[0]
	}
	c := holding("k", 3)
	two := c
	two.Cost = 2
	want("one of three", take(c), true, 3, 2, 0)
	want("two more", take(two), true, 3, 0, 0)
	want("one above", take(c), false, 3, 0, 0)
	clock.Add(3_600_000) // it has not left by itself: this process holds it
	_ = s.ChargeMore(ctx, c, 1)
	want("after an hour, and one above the limit", take(c), false, 3, 0, 0)
	four := c
	four.Cost = 4
	want("above the limit itself", take(four), false, 3, 0, window.Never)
	_ = s.GiveBack(ctx, c, 0, 2)
	want("two are free", take(c), true, 3, 0, 0)
	want("a higher limit", take(holding("k", 9)), true, 9, 5, 0)
	want("a lower limit", take(holding("k", 2)), false, 2, 0, 0)
	want("limit 0", take(holding("other", 0)), false, 0, 0, window.Never)
	look := c
	look.Cost = 0
	want("a look", take(look), true, 3, 0, 0)
	_ = s.GiveBack(ctx, c, 0, 100)
	want("all are free", take(look), true, 3, 3, 0)
	_ = s.GiveBack(ctx, holding("never held", 3), 0, 1)
	want("nothing was held", take(holding("never held", 1)), true, 1, 0, 0)
	if err := s.Reset(ctx, holding("never held", 1)); err != nil {
		t.Error(err)
	}
	want("a reset frees nothing", take(holding("never held", 1)), false, 1, 0, 0)
}

// testHeldWalk takes and gives back at random, beside limits of units that leave, in calls of one request and of many. What
// a model says is what the store decides, all or nothing.
func testHeldWalk(t *testing.T, open Open) {
	for walk := range rounds(20) {
		r, seed := random(walk)
		clock := NewClock()
		s, ctx := open(t, clock), context.Background()
		held, spent := map[string]int64{}, map[string]int64{} // spent on limits of an hour
		for step := range 200 {
			clock.Add(r.Int64N(2))
			key := strconv.Itoa(r.IntN(3))
			if r.IntN(3) == 0 {
				c := holding(key, 1)
				units := r.Int64N(3)
				if err := s.GiveBack(ctx, c, 0, units); err != nil {
					t.Fatal(err)
				}
				held[key] = max(0, held[key]-units)
				continue
			}
			var requests [][]window.Charge
			for range 1 + r.IntN(4)*r.IntN(2) {
				requests = append(requests, heldRequest(r))
			}
			for i, result := range s.TakeBatch(ctx, requests) {
				if result.Err != nil {
					t.Fatal(result.Err)
				}
				if got, want := shown(result.Decisions), heldModel(requests[i], held, spent); !slices.Equal(got, want) {
					t.Fatalf("%s, step %d, request %d of %d, %+v: %v, want %v; held %v, spent %v", seed, step, i, len(requests), requests[i], got, want, held, spent)
				}
			}
		}
	}
}

// heldRequest returns a request that holds units, most often beside limits.
func heldRequest(r *rand.Rand) (charges []window.Charge) {
	c := holding(strconv.Itoa(r.IntN(3)), 1+r.Int64N(6))
	c.Cost = min(r.Int64N(5), 2)
	charges = append(charges, c)
	if r.IntN(3) > 0 {
		charges = append(charges, Charge("limit", strconv.Itoa(r.IntN(3)), 40, time.Hour))
	}
	if r.IntN(4) == 0 {
		other := holding("another", 4)
		other.Zone = "held too"
		charges = append([]window.Charge{other}, charges...)
	}
	return charges
}

// heldModel decides on a request by plain sums.
func heldModel(charges []window.Charge, held, spent map[string]int64) (all []heldVerdict) {
	sums := func(c *window.Charge) (map[string]int64, string) {
		switch {
		case c.Algorithm != window.Algorithm(window.Concurrent{}):
			return spent, c.Key
		case c.Zone == "held":
			return held, c.Key
		}
		return held, c.Zone
	}
	fits := true
	for i := range charges {
		c := &charges[i]
		m, key := sums(c)
		left := c.Policies[0].Limit - m[key]
		v := heldVerdict{c.Cost == 0 || c.Cost <= left, max(0, left)}
		fits, all = fits && v.allowed, append(all, v)
	}
	for i := range charges {
		if c := &charges[i]; fits {
			m, key := sums(c)
			m[key] += c.Cost
			all[i].left -= c.Cost * min(1, all[i].left)
		}
	}
	return all
}

type heldVerdict struct {
	allowed bool
	left    int64
}

func shown(ds []window.Decision) (all []heldVerdict) {
	for i := range ds {
		all = append(all, heldVerdict{ds[i].Allowed, ds[i].Remaining})
	}
	return all
}
