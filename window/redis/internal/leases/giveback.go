package leases

import (
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/fingerprint"
)

// of returns the holder of a charge, or nil.
func (l *Leases) of(c *window.Charge) *Holder {
	key := fingerprint.Append(nil, c, 0)
	return l.shard(key).find(key)
}

// GiveBack gives units back to the lease that they are from. It reports whether
// there is one.
func (l *Leases) GiveBack(c *window.Charge, at, units int64) bool {
	return l.giveBackTo(l.of(c), at, units) || l.debts.giveBack(c, at, units)
}

func (l *Leases) giveBackTo(e *Holder, at, units int64) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own := e.lease
	if own == nil || own.decisions[0].At != at {
		return false
	}
	own.left += min(units, own.used())
	return true
}

// EndOf ends the lease of a charge, if there is one: units that were spent beside it may
// leave no room for it.
func (l *Leases) EndOf(c *window.Charge) {
	e := l.of(c)
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lease != nil {
		l.end(e)
	}
}

// Forget drops the leases of a counter, whatever its policies: its history is gone.
func (l *Leases) Forget(c *window.Charge) {
	name := nameOf(c)
	is := func(other *window.Charge) bool { return nameOf(other) == name }
	l.each(func(e *Holder) {
		if e.lease != nil && is(&e.lease.charge) {
			e.lease.timer.Stop()
			e.lease = nil
		}
		if e.fetch != nil && is(e.fetch.charge) {
			e.fetch.reset = true
		}
	})
	l.debts.forget(name)
}
