package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// expire ends a lease whose time is over.
func (l *leases) expire(e *lessee, own *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lease == own {
		l.end(e)
	}
}

// end ends the lease of e, whose lock must be held, and has it booked. If the first booking may
// have left a window by then, the end is a debt: a decision has to wait for it.
func (l *leases) end(e *lessee) {
	own := e.drop()
	if l.late(own) {
		l.debts.add(own, errLate)
		return
	}
	l.ends.Go(func() { _ = l.bookEach([]*lease{own}) })
}

// late reports whether a booking that is made now may reach the server when the first one
// has left a window.
func (l *leases) late(own *lease) bool {
	return l.now().since(own.taken) > shortest(&own.charge)-l.store.timeout
}

// drop takes the lease away, which somebody has to book.
func (e *lessee) drop() *lease {
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
func (l *leases) book(ctx context.Context, all []*lease) []error {
	s := l.store
	errs := make([]error, len(all))
	rest, places := l.recent(ctx, all, errs)
	var calls []*call
	for _, own := range rest {
		requests, numbers := [][]window.Charge{{own.charge}}, []int64{own.decisions[0].At, -own.charge.Cost}
		if used := own.used(); used > 0 {
			requests, numbers = append(requests, requests[0]), append([]int64{0, used}, numbers...)
		}
		calls = append(calls, s.newSettleCalls(requests, numbers...)...)
	}
	s.run(ctx, calls)
	for i, own := range rest {
		each := len(calls) / len(rest)
		errs[places[i]] = s.settleError(ctx, calls[i*each:(i+1)*each])
		if own.left > 0 {
			s.denials.forget(&own.charge)
		}
	}
	return errs
}

// recent returns the leases of which there is something to book, and their places: not
// those of which all that was used has left the longest window, by the clock of the server.
// That is asked only where a clock of this process says that it may be so. It writes
// the errors of the others.
func (l *leases) recent(ctx context.Context, all []*lease, errs []error) (rest []*lease, places []int) {
	now := l.now()
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
	for k, r := range l.store.decide(ctx, "peek", requests) {
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
func (l *leases) booked(own *lease, err error) {
	switch {
	case err == nil:
	case errors.Is(err, window.ErrUnknown):
		l.unbooked(own, err)
	default:
		l.debts.add(own, err)
	}
}

// repay books what is owed on the counters of charges, before the store decides on them. It
// has until *end, which it sets to the timeout of the store if zero. Bookings in flight go on
// when ctx is cancelled: other requests may wait for them.
func (l *leases) repay(ctx context.Context, end *time.Time, charges ...window.Charge) error {
	if end.IsZero() {
		*end = time.Now().Add(l.store.timeout)
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

func (l *leases) repayOne(ctx context.Context, end time.Time, name string) error {
	for {
		all, wait := l.debts.begin(name)
		switch {
		case all != nil:
			own, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
			defer cancel()
			return l.debts.finish(name, all, l.book(own, all))
		case wait == nil:
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return l.store.failUncharged(ctx, ctx.Err())
		}
	}
}

// owes reports whether something has to be booked before the store decides on a request.
func (l *leases) owes(charges []window.Charge) bool {
	for i := range charges {
		if len(charges) > 1 && charges[i].Lease.Units > 0 { // one alone finds its lease anyway
			l.endLate(&charges[i])
		}
	}
	return l.debts.n.Load() > 0 && slices.ContainsFunc(charges, func(c window.Charge) bool { return l.debts.has(&c) })
}

// endLate ends the lease of a charge if the end is late.
func (l *leases) endLate(c *window.Charge) {
	if e := l.of(c); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.lease != nil && l.late(e.lease) {
			l.end(e)
		}
	}
}

// errLate is the cause of a debt that has not been tried to book.
var errLate = errors.New("it ended late")

// bookedLate reports a lease that was booked when the first booking had left a window: until
// then, others could spend the units that were used.
func (l *leases) bookedLate(own *lease) {
	if age := l.now().since(own.taken); own.used() > 0 && age >= shortest(&own.charge) {
		l.store.report(fmt.Errorf("zone %q: %d units that were used of a lease were missing: it ended %s after it was taken, as the store was away or this process stopped", own.charge.Zone, own.used(), age.Truncate(time.Millisecond)))
	}
}

// unbooked reports a lease of which the units stay where they are.
func (l *leases) unbooked(own *lease, err error) {
	l.store.report(fmt.Errorf("zone %q: a lease of %d units, %d of them used, was not booked at its end: %w", own.charge.Zone, own.charge.Cost, own.used(), err))
}

// of returns the lessee of a charge, or nil.
func (l *leases) of(c *window.Charge) *lessee {
	key := appendCharge(nil, c, 0)
	return l.shard(key).find(key)
}

// giveBack gives units back to the lease that they are from. It reports whether
// there is one.
func (l *leases) giveBack(c *window.Charge, at, units int64) bool {
	return l.giveBackTo(l.of(c), at, units) || l.debts.giveBack(c, at, units)
}

func (l *leases) giveBackTo(e *lessee, at, units int64) bool {
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

// endOf ends the lease of a charge, if there is one: units that were spent beside it may
// leave no room for it.
func (l *leases) endOf(c *window.Charge) {
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

// forget drops the leases of a counter, whatever its policies: its history is gone.
func (l *leases) forget(c *window.Charge) {
	name := nameOf(c)
	is := func(other *window.Charge) bool { return nameOf(other) == name }
	l.each(func(e *lessee) {
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

// closing is the weight of the leases that are booked in one round trip when the store
// closes: some 10 ms of the server's time.
const closing = 8 * batchWeight

// drain ends all leases, and returns when they are booked, or are debts; those that are being
// taken, too. There are no more leases after it.
func (l *leases) drain() {
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		shard.closed = true
		shard.mu.Unlock()
	}
	var all []*lease
	var fetches []*fetch
	l.each(func(e *lessee) {
		e.gone = true
		if e.lease != nil {
			all = append(all, e.drop())
		}
		if e.fetch != nil {
			fetches = append(fetches, e.fetch)
		}
	})
	for len(all) > 0 {
		n, weight := 0, int64(0)
		for n < len(all) && weight < closing {
			weight += l.store.weightOf([]window.Charge{all[n].charge})
			n++
		}
		away := l.bookEach(all[:n])
		if all = all[n:]; away != nil { // a store that closes does not wait for each in turn
			for _, own := range all {
				l.debts.add(own, away)
			}
			break
		}
	}
	for _, f := range fetches {
		<-f.done
	}
	l.ends.Wait()
}

// bookEach books leases that have just ended, in one round trip. It returns an error that says
// something about the server.
func (l *leases) bookEach(all []*lease) (away error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.store.timeout)
	defer cancel()
	for i, err := range l.book(ctx, all) {
		l.booked(all[i], err)
		if err != nil && !errors.Is(err, window.ErrRefused) && !errors.Is(err, window.ErrForeign) {
			away = err
		}
	}
	return away
}
