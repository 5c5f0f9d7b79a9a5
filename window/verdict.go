package window

import "time"

// What differs between algorithms are two functions, on the window of policy j at the time of the
// decision: count returns how many units it holds, and falls the time until it holds at most n
// units, which is less than it holds; the whole window if n is below 0. Twin of lua/verdict.lua.
type (
	count func(j int) int64
	falls func(j int, n int64) time.Duration
)

// look is Algorithm.look.
func look(now int64, c *Charge, ds []Decision, count count) bool {
	fits := true
	for j, p := range c.Policies {
		limit := c.Algorithm.atOnce(p)
		left := limit - count(j)
		allowed := c.Cost == 0 || c.Cost <= left
		ds[j] = Decision{Allowed: allowed, Limit: limit, Remaining: left, At: now}
		fits = fits && allowed
	}
	return fits
}

// spent completes the decisions on a charge that is booked. Only units that leave one by
// one take a whole window.
func spent(c *Charge, ds []Decision, falls falls) {
	for j, p := range c.Policies {
		d := &ds[j]
		d.Remaining -= c.Cost
		d.ResetAfter, d.EffectiveWindow = p.Window, p.Window
		if d.Remaining == 0 {
			d.EffectiveWindow = falls(j, d.Limit-1)
		}
	}
}

// explain completes the decisions on a charge that is not spent.
func explain(c *Charge, ds []Decision, falls falls) {
	for j := range c.Policies {
		d := &ds[j]
		held := d.Limit - d.Remaining
		switch {
		case d.Allowed:
		case c.Cost > d.Limit:
			d.RetryAfter = Never
		default:
			d.RetryAfter = falls(j, d.Limit-c.Cost)
		}
		if held > 0 {
			d.ResetAfter = falls(j, 0)
		}
		d.EffectiveWindow = falls(j, min(held, d.Limit)-1)
		d.Remaining = max(0, d.Remaining)
	}
}
