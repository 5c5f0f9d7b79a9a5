package leases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// expire ends a lease whose time is over.
func (l *Leases) expire(e *Holder, own *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lease == own {
		l.end(e)
	}
}

// end ends the lease of e, whose lock must be held, and has it booked. If the first booking may
// have left a window by then, the end is a debt: a decision has to wait for it.
func (l *Leases) end(e *Holder) {
	own := e.drop()
	if l.late(own) {
		l.debts.add(own, errLate)
		return
	}
	l.ends.Go(func() { _ = l.bookEach([]*lease{own}) })
}

// late reports whether a booking that is made now may reach the server when the first one
// has left a window.
func (l *Leases) late(own *lease) bool {
	return l.Now().since(own.taken) > shortest(&own.charge)-l.env.Timeout
}

// drop removes the lease, which the caller has to book.
func (e *Holder) drop() *lease {
	own := e.lease
	e.lease = nil
	own.timer.Stop()
	if own.left > own.charge.Cost/2 {
		e.size = max(1, own.used()/2) // the next one is twice that
	}
	return own
}

// used returns how many units were handed out.
func (own *lease) used() int64 { return own.charge.Cost - own.left }

// book books the units of leases where they belong, in one round trip, and returns an
// error for each, or nil.
func (l *Leases) book(ctx context.Context, all []*lease) []error {
	errs := make([]error, len(all))
	rest, places := l.recent(ctx, all, errs)
	bookings := make([]Booking, len(rest))
	for i, own := range rest {
		bookings[i] = Booking{Charge: &own.charge, At: own.decisions[0].At, Used: own.used()}
	}
	for i, err := range l.env.Book(ctx, bookings) {
		errs[places[i]] = err
	}
	return errs
}

// recent returns the leases of which there is something to book, and their places: not
// those of which all that was used has left the longest window, by the clock of the server.
// That is asked only where a clock of this process says that it may be so. It writes
// the errors of the others.
func (l *Leases) recent(ctx context.Context, all []*lease, errs []error) (rest []*lease, places []int) {
	now := l.Now()
	var requests [][]window.Charge
	var asked []int
	for i, own := range all {
		switch {
		case own.over(now.sinceAtLeast(own.taken)):
		case own.over(now.since(own.taken)):
			look := own.charge
			look.Cost = 0
			requests, asked = append(requests, []window.Charge{look}), append(asked, i)
		default:
			rest, places = append(rest, own), append(places, i)
		}
	}
	if requests == nil {
		return rest, places
	}
	for k, r := range l.env.Peek(ctx, requests) {
		i := asked[k]
		switch own := all[i]; {
		case r.Err != nil:
			errs[i] = engine.NotSent(r.Err)
		case !own.over(time.Duration(r.Decisions[0].At-own.decisions[0].At) * time.Millisecond):
			rest, places = append(rest, own), append(places, i)
		}
	}
	return rest, places
}

// over reports whether all units of a lease have left the longest window, some time after
// it was taken.
func (own *lease) over(age time.Duration) bool {
	longest := time.Duration(0)
	for _, p := range own.charge.Policies {
		longest = max(longest, p.Window)
	}
	return age >= own.last+longest
}

// booked takes the error of booking a lease that has ended just now.
func (l *Leases) booked(own *lease, err error) {
	switch {
	case err == nil:
	case errors.Is(err, window.ErrUnknown):
		l.unbooked(own, err)
	default:
		l.debts.add(own, err)
	}
}

// errLate is the cause of a debt that has not been tried to book.
var errLate = errors.New("it ended late")

// bookedLate reports a lease that was booked when the first booking had left a window: until
// then, others could spend the units that were used.
func (l *Leases) bookedLate(own *lease) {
	if age := l.Now().since(own.taken); own.used() > 0 && age >= shortest(&own.charge) {
		l.env.Report(fmt.Errorf("zone %q: %d units that were used of a lease were missing: it ended %s after it was taken, as the store was away or this process stopped", own.charge.Zone, own.used(), age.Truncate(time.Millisecond)))
	}
}

// unbooked reports a lease of which the units stay where they are.
func (l *Leases) unbooked(own *lease, err error) {
	l.env.Report(fmt.Errorf("zone %q: a lease of %d units, %d of them used, was not booked at its end: %w", own.charge.Zone, own.charge.Cost, own.used(), err))
}

// bookEach books leases that have just ended, in one round trip. It returns an error that says
// something about the server.
func (l *Leases) bookEach(all []*lease) (away error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.env.Timeout)
	defer cancel()
	for i, err := range l.book(ctx, all) {
		l.booked(all[i], err)
		if err != nil && !errors.Is(err, window.ErrRefused) && !errors.Is(err, window.ErrForeign) {
			away = err
		}
	}
	return away
}
