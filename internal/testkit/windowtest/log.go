package windowtest

import (
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Log is the time of every unit ever spent, in order.
type Log []int64

// Spend adds n units.
func (l *Log) Spend(now, n int64) {
	for range n {
		*l = append(*l, now)
	}
}

// GiveBack takes away up to n of the units spent at a time.
func (l *Log) GiveBack(at, n int64) {
	for range n {
		if i := slices.Index(*l, at); i >= 0 {
			*l = slices.Delete(*l, i, i+1)
		}
	}
}

// Forget drops the units spent at or before a time.
func (l *Log) Forget(at int64) {
	*l = slices.DeleteFunc(*l, func(t int64) bool { return t <= at })
}

// PullBack moves the units that lie in the future to now.
func (l Log) PullBack(now int64) {
	for i := range l {
		l[i] = min(l[i], now)
	}
}

// Count returns the units in (now-window, now].
func (l Log) Count(now int64, p window.Policy) int64 {
	var n int64
	for _, at := range l {
		if at > now-p.Window.Milliseconds() && at <= now {
			n++
		}
	}
	return n
}

// wait returns the time until no more than target units are in the window.
func (l Log) wait(now int64, p window.Policy, target int64) (time.Duration, bool) {
	if l.Count(now, p) <= target {
		return 0, true
	}
	for _, at := range l {
		if leaves := at + p.Window.Milliseconds(); leaves > now && l.Count(leaves, p) <= target {
			return time.Duration(leaves-now) * time.Millisecond, true
		}
	}
	return 0, false
}

// Expect says what a store has to answer to charges on counters of these logs, and
// spends.
func Expect(now int64, charges []window.Charge, own []*Log, take bool) []window.Decision {
	fits := true
	for i, c := range charges {
		for _, p := range c.Policies {
			fits = fits && (c.Cost == 0 || own[i].Count(now, p)+c.Cost <= p.Limit)
		}
	}
	var ds []window.Decision
	for i, c := range charges {
		h := own[i]
		allowed := make([]bool, len(c.Policies))
		for j, p := range c.Policies {
			allowed[j] = c.Cost == 0 || h.Count(now, p)+c.Cost <= p.Limit
		}
		spent := take && fits && c.Cost > 0
		if spent {
			h.Spend(now, c.Cost)
		}
		for j, p := range c.Policies {
			d := window.Decision{Allowed: allowed[j], Limit: p.Limit, At: now, EffectiveWindow: p.Window}
			d.Remaining = max(0, p.Limit-h.Count(now, p))
			if !d.Allowed {
				d.RetryAfter = window.Never
				if wait, ok := h.wait(now, p, p.Limit-c.Cost); ok {
					d.RetryAfter = wait
				}
			}
			d.ResetAfter, _ = h.wait(now, p, 0)
			if d.Remaining == 0 || !spent {
				if wait, ok := h.wait(now, p, min(p.Limit, h.Count(now, p))-1); ok {
					d.EffectiveWindow = wait
				}
			}
			ds = append(ds, d)
		}
	}
	return ds
}
