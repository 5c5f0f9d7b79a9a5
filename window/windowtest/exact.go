package windowtest

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func testZsetExact(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Zset{}))
}

func testLogExact(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Log{}))
}

func testMillisecondSlices(t *testing.T, open Open) {
	testExact(newFixture(t, open, window.Slices{Size: time.Millisecond}))
}

// testExact compares every field of every decision with those of a history that
// is only looked at from one end to the other.
func testExact(f *fixture) {
	for walk := range 40 {
		r, name := random(walk)
		logs := map[string]*history{}
		longest := per(0, 30_000+r.Int64N(30_000))
		for step := range 250 {
			f.clock.Add(r.Int64N(1 + r.Int64N(3_000)))
			now := f.clock.Now()
			var charges []window.Charge
			for z := range 1 + r.IntN(2) {
				// One window is the longest throughout: a shorter one would forget.
				policies := append(randomPolicies(r), window.Policy{Limit: r.Int64N(30), Window: longest.Window})
				for i := range policies {
					policies[i].Window = min(policies[i].Window, longest.Window)
				}
				charges = append(charges, f.charge(name+string(rune('0'+z)), string(rune('a'+r.IntN(2))), randomCost(r), policies...))
			}
			own := make([]*history, len(charges))
			for i, c := range charges {
				if own[i] = logs[c.Zone+c.Key]; own[i] == nil {
					own[i] = new(history)
					logs[c.Zone+c.Key] = own[i]
				}
			}
			switch r.IntN(12) {
			case 0:
				if err := f.store.Reset(f.Context(), charges[0]); err != nil {
					f.Fatal(err)
				}
				*own[0] = nil
			case 1:
				delta := r.Int64N(4)
				f.settle(charges[0], now, delta)
				own[0].spend(now, delta)
			case 2:
				at, n := now-r.Int64N(2_000), r.Int64N(3)
				if len(*own[0]) > 0 {
					at = (*own[0])[r.IntN(len(*own[0]))]
				}
				f.settle(charges[0], at, -n)
				own[0].giveBack(at, n)
			case 3:
				if got, want := f.peek(charges...), expect(now, charges, own, false); !slices.Equal(got, want) {
					f.Fatalf("%s, step %d: Peek(%v) = %+v, want %+v", name, step, charges, got, want)
				}
			default:
				if got, want := f.take(charges...), expect(now, charges, own, true); !slices.Equal(got, want) {
					f.Fatalf("%s, step %d: Take(%v) = %+v, want %+v", name, step, charges, got, want)
				}
			}
		}
	}
}

// history is the time of every unit ever spent, in order.
type history []int64

func (h *history) spend(now, n int64) {
	for range n {
		*h = append(*h, now)
	}
}

func (h *history) giveBack(at, n int64) {
	for range n {
		if i := slices.Index(*h, at); i >= 0 {
			*h = slices.Delete(*h, i, i+1)
		}
	}
}

// count returns the units in (now-window, now].
func (h history) count(now int64, p window.Policy) int64 {
	var n int64
	for _, at := range h {
		if at > now-p.Window.Milliseconds() && at <= now {
			n++
		}
	}
	return n
}

// wait returns the time until no more than target units are in the window.
func (h history) wait(now int64, p window.Policy, target int64) (time.Duration, bool) {
	if h.count(now, p) <= target {
		return 0, true
	}
	for _, at := range h {
		if leaves := at + p.Window.Milliseconds(); leaves > now && h.count(leaves, p) <= target {
			return time.Duration(leaves-now) * time.Millisecond, true
		}
	}
	return 0, false
}

// expect says what a store has to answer, and spends.
func expect(now int64, charges []window.Charge, own []*history, take bool) []window.Decision {
	fits := true
	for i, c := range charges {
		for _, p := range c.Policies {
			fits = fits && (c.Cost == 0 || own[i].count(now, p)+c.Cost <= p.Limit)
		}
	}
	var ds []window.Decision
	for i, c := range charges {
		h := own[i]
		allowed := make([]bool, len(c.Policies))
		for j, p := range c.Policies {
			allowed[j] = c.Cost == 0 || h.count(now, p)+c.Cost <= p.Limit
		}
		spent := take && fits && c.Cost > 0
		if spent {
			h.spend(now, c.Cost)
		}
		for j, p := range c.Policies {
			d := window.Decision{Allowed: allowed[j], Limit: p.Limit, At: now, EffectiveWindow: p.Window}
			d.Remaining = max(0, p.Limit-h.count(now, p))
			if !d.Allowed {
				d.RetryAfter = window.Never
				if wait, ok := h.wait(now, p, p.Limit-c.Cost); ok {
					d.RetryAfter = wait
				}
			}
			d.ResetAfter, _ = h.wait(now, p, 0)
			if d.Remaining == 0 || !spent {
				if wait, ok := h.wait(now, p, min(p.Limit, h.count(now, p))-1); ok {
					d.EffectiveWindow = wait
				}
			}
			ds = append(ds, d)
		}
	}
	return ds
}
