package redis

import (
	"context"
	"errors"
	"fmt"

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

// end ends the lease of e, whose lock is held, and has it booked.
func (l *leases) end(e *lessee) {
	own := e.drop()
	l.ends.Go(func() { _ = l.book([]*lease{own}) })
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

// book books the units of leases where they belong, in one round trip. If the server
// cannot be asked, they stay where they are: those that were used may leave the window
// early, by the lifetime of the lease at most. It returns the last error that is no
// answer of the server.
func (l *leases) book(all []*lease) (away error) {
	s := l.store
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	var calls []*call
	for _, own := range all {
		requests, numbers := [][]window.Charge{{own.charge}}, []int64{own.decisions[0].At, -own.charge.Cost}
		if used := own.used(); used > 0 {
			requests, numbers = append(requests, requests[0]), append([]int64{0, used}, numbers...)
		}
		calls = append(calls, s.newSettleCalls(requests, numbers...)...)
	}
	s.run(ctx, calls)
	each := len(calls) / len(all)
	for i, own := range all {
		if err := s.firstError(ctx, calls[i*each:(i+1)*each]); err != nil {
			l.unbooked(own, err)
			if !errors.Is(err, window.ErrRefused) && !errors.Is(err, window.ErrForeign) {
				away = err
			}
		}
		if own.left > 0 {
			s.denials.forget(&own.charge)
		}
	}
	return away
}

// unbooked reports a lease of which the units stay where they are.
func (l *leases) unbooked(own *lease, err error) {
	l.store.report(fmt.Errorf("zone %q: a lease of %d units, %d of them used, was not booked at its end: %w", own.charge.Zone, own.charge.Cost, own.used(), err))
}

// giveBack gives units back to the lease that they are from. It reports whether
// there is one.
func (l *leases) giveBack(c *window.Charge, at, units int64) bool {
	key := appendCharge(nil, c, 0)
	e := l.shard(key).find(key)
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	own := e.lease
	if own == nil || own.decisions[0].At != at {
		return false
	}
	own.left += min(units, own.charge.Cost-own.left)
	return true
}

// endOf ends the lease of a charge, if there is one: units that were spent beside it may
// leave no room for it.
func (l *leases) endOf(c *window.Charge) {
	key := appendCharge(nil, c, 0)
	e := l.shard(key).find(key)
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
	name := string(window.AppendKey(nil, c))
	is := func(other *window.Charge) bool { return string(window.AppendKey(nil, other)) == name }
	l.each(func(e *lessee) {
		if e.lease != nil && is(&e.lease.charge) {
			e.lease.timer.Stop()
			e.lease = nil
		}
		if e.fetch != nil && is(e.fetch.charge) {
			e.fetch.reset = true
		}
	})
}

// closing is the weight of the leases that are booked in one round trip when the store
// closes: some 10 ms of the server's time.
const closing = 8 * batchWeight

// close ends all leases, and returns when they are booked; those that are being taken,
// too. There are no more after it.
func (l *leases) close() {
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
		err := l.book(all[:n])
		if all = all[n:]; err != nil { // a store that closes does not wait for each in turn
			for _, own := range all {
				l.unbooked(own, err)
			}
			break
		}
	}
	for _, f := range fetches {
		<-f.done
	}
	l.ends.Wait()
}
