package leases

import (
	"context"
	"errors"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/owed"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
)

const (
	// maxDebts is on how many counters there may be debts.
	maxDebts = 64 * HoldersPerShard
	// mostDebts is how many debts are booked in one round trip of the background at most.
	mostDebts = batch.MaxWeight / 2
)

// debts are leases that have ended, and were certainly not booked then: the server was
// away, or this process was stopped for so long that the first booking has left the window.
// They are booked before the next decision on their counter, and in the background.
type debts struct {
	*owed.List[string, debt]
	leases *Leases
}

// debt is what is to be booked on a counter.
type debt struct {
	all       []*lease // that are not being booked
	cause     error    // why not
	forgotten bool     // those that are being booked are
}

func (d *debts) init(l *Leases) {
	d.leases = l
	d.List = owed.New[string](owed.Options[debt]{
		Most: maxDebts, None: func(one *debt) bool { return len(one.all) == 0 }, Book: d.book,
		After: 100 * time.Millisecond, Again: 500 * time.Millisecond, Pause: 10 * time.Millisecond, Round: mostDebts,
	})
	d.Open()
}

func nameOf(c *window.Charge) string { return string(engine.AppendKey(nil, c)) }

// add adds a lease, which was not booked because of a cause. If there are too many, or the
// store is closed, it reports the lease instead.
func (d *debts) add(own *lease, cause error) {
	if !d.Add(nameOf(&own.charge), func(one *debt) { one.all, one.cause = append(one.all, own), cause }) {
		d.leases.unbooked(own, cause)
	}
}

// has reports whether there is a debt on the counter of a charge.
func (d *debts) has(c *window.Charge) bool { return d.Len() > 0 && d.Has(nameOf(c)) }

// takeInto returns a function that takes what is to be booked on a counter, for the caller to do so and then to call
// finish.
func takeInto(all *[]*lease) func(*debt) bool {
	return func(one *debt) bool {
		*all, one.all, one.forgotten = one.all, nil, false
		return len(*all) > 0
	}
}

// finish takes the errors of booking leases of a counter. It returns the last one, and
// keeps what was certainly not booked.
func (d *debts) finish(name string, all []*lease, errs []error) (last error) {
	defer d.Finish(name)
	for i, own := range all {
		switch err := errs[i]; {
		case err == nil:
			d.leases.bookedLate(own)
			continue
		case errors.Is(err, window.ErrUnknown):
			d.leases.unbooked(own, err)
		case !d.Change(name, func(one *debt) {
			if one.cause = err; !one.forgotten {
				one.all = append(one.all, own)
			}
		}):
			d.leases.unbooked(own, err) // the store is closed
		}
		last = errs[i]
	}
	return last
}

// forget drops the debts on a counter.
func (d *debts) forget(name string) {
	d.Change(name, func(one *debt) { one.all, one.forgotten = nil, true })
}

// giveBack gives units back to a lease that was taken at a time, and is not being booked. It
// reports whether there is one.
func (d *debts) giveBack(c *window.Charge, at, units int64) (given bool) {
	if d.Len() == 0 {
		return false
	}
	d.Change(nameOf(c), func(one *debt) {
		for _, own := range one.all {
			if own.decisions[0].At == at && !given {
				own.left += min(units, own.used())
				given = true
			}
		}
	})
	return given
}

// book books the debts on counters that are due, in one round trip; the first time only if the server answers. It
// returns how many there were, and an error that says something about the server.
func (d *debts) book(most int, due time.Time) (n int, away error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.leases.env.Timeout)
	defer cancel()
	if most == 1 {
		if err := d.leases.env.Ping(ctx); err != nil {
			return 0, err
		}
	}
	names := d.Due(most, due)
	own, all := make([][]*lease, len(names)), []*lease(nil)
	for i, name := range names {
		if begun, _ := d.Try(name, takeInto(&own[i])); begun { // else it is being booked
			all = append(all, own[i]...)
		}
	}
	errs := d.leases.book(ctx, all)
	for i, leases := range own {
		if len(leases) == 0 {
			continue
		}
		if err := d.finish(names[i], leases, errs[:len(leases)]); err != nil && !errors.Is(err, window.ErrForeign) {
			away = err
		}
		errs = errs[len(leases):]
	}
	return len(names), away
}

// close ends the background, and books what is left. A debt that cannot be booked is reported: a store that closes does not wait for each debt in turn.
func (d *debts) close() {
	d.Close()
	d.Wait()
	d.Rest(d.book)
	for _, one := range d.Empty() {
		for _, own := range one.all {
			d.leases.unbooked(own, one.cause)
		}
	}
}
