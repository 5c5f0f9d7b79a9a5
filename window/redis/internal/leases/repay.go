package leases

import (
	"context"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Repay books what is owed on the counters of charges, before the store decides on them. It
// has until *end, which it sets to the timeout of the store if zero. Bookings in flight go on
// when ctx is cancelled: other requests may wait for them.
func (l *Leases) Repay(ctx context.Context, end *time.Time, charges ...window.Charge) error {
	if end.IsZero() {
		*end = time.Now().Add(l.env.Timeout)
	}
	ctx, cancel := context.WithDeadline(ctx, *end)
	defer cancel()
	for i := range charges {
		if !l.debts.has(&charges[i]) {
			continue
		}
		if err := l.repayOne(ctx, *end, nameOf(&charges[i])); err != nil {
			return engine.NotSent(err)
		}
	}
	return nil
}

func (l *Leases) repayOne(ctx context.Context, end time.Time, name string) error {
	var all []*lease
	switch begun, err := l.debts.Begin(ctx, name, takeInto(&all)); {
	case err != nil:
		return l.env.Fail(ctx, err)
	case !begun:
		return nil
	}
	own, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	return l.debts.finish(name, all, l.book(own, all))
}

// Owes reports whether something has to be booked before the store decides on a request.
func (l *Leases) Owes(charges []window.Charge) bool {
	for i := range charges {
		if len(charges) > 1 && charges[i].Lease.Units > 0 { // one alone finds its lease anyway
			l.endLate(&charges[i])
		}
	}
	return l.debts.Len() > 0 && slices.ContainsFunc(charges, func(c window.Charge) bool { return l.debts.has(&c) })
}

// endLate ends the lease of a charge if the end is late.
func (l *Leases) endLate(c *window.Charge) {
	if e := l.of(c); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.lease != nil && l.late(e.lease) {
			l.end(e)
		}
	}
}
