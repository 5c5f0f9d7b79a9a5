package leases

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
)

const (
	// maxDebts is on how many counters there may be debts.
	maxDebts = 64 * HoldersPerShard
	// debtAfter is how long the background waits before it books a debt, and between two
	// attempts while the server does not answer.
	debtAfter = 100 * time.Millisecond
	// debtAgain is how long a debt waits that could not be booked.
	debtAgain = 500 * time.Millisecond
	// debtPause is the time between two round trips, of mostDebts debts at most.
	debtPause = 10 * time.Millisecond
	mostDebts = batch.MaxWeight / 2
)

// debts are leases that have ended, and were certainly not booked then: the server was
// away, or this process was stopped for so long that the first booking has left the window.
// They are booked before the next decision on their counter, and in the background.
type debts struct {
	leases *Leases
	n      atomic.Int64 // counters
	stop   chan struct{}
	group  sync.WaitGroup

	mu              sync.Mutex // guards what follows
	byName          map[string]*debt
	running, closed bool
}

// debt is what is to be booked on a counter.
type debt struct {
	all       []*lease      // that nobody books just now
	cause     error         // why not
	due       time.Time     // not booked in the background before
	booking   chan struct{} // closed when those that begin returned are booked; nil: none
	forgotten bool          // those are
}

func (d *debts) init(l *Leases) {
	d.leases, d.stop, d.byName = l, make(chan struct{}), make(map[string]*debt)
}

func nameOf(c *window.Charge) string { return string(engine.AppendKey(nil, c)) }

// add adds a lease, which was not booked because of a cause. If there are too many, or the
// store is closed, it reports the lease instead.
func (d *debts) add(own *lease, cause error) {
	name := nameOf(&own.charge)
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if d.closed || one == nil && len(d.byName) >= maxDebts {
		d.leases.unbooked(own, cause)
		return
	}
	if one == nil {
		one = new(debt)
		d.byName[name] = one
		d.n.Add(1)
	}
	one.all, one.cause = append(one.all, own), cause
	if !d.running {
		d.running = true
		d.group.Go(d.run)
	}
}

// has reports whether there is a debt on the counter of a charge.
func (d *debts) has(c *window.Charge) bool {
	if d.n.Load() == 0 {
		return false
	}
	name := nameOf(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byName[name] != nil
}

// begin returns what is to be booked on a counter, for the caller to do so and then to call
// finish; or what to wait for if that is done already; or neither.
func (d *debts) begin(name string) (all []*lease, wait <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if one == nil || one.booking != nil {
		if one != nil {
			wait = one.booking
		}
		return nil, wait
	}
	one.booking = make(chan struct{})
	all, one.all = one.all, nil
	return all, nil
}

// finish takes the errors of booking what begin has returned. It returns the last one, and
// keeps what was certainly not booked.
func (d *debts) finish(name string, all []*lease, errs []error) (last error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	for i, own := range all {
		switch err := errs[i]; {
		case err == nil:
			d.leases.bookedLate(own)
		case errors.Is(err, window.ErrUnknown):
			last = err
			d.leases.unbooked(own, err)
		default:
			last, one.cause = err, err
			if !one.forgotten {
				one.all = append(one.all, own)
			}
		}
	}
	close(one.booking)
	one.booking, one.forgotten, one.due = nil, false, time.Now().Add(debtAgain)
	d.drop(name, one)
	return last
}

// drop drops what is no debt any more. mu must be held.
func (d *debts) drop(name string, one *debt) {
	if len(one.all) == 0 && one.booking == nil {
		delete(d.byName, name)
		d.n.Add(-1)
	}
}

// forget drops the debts on a counter.
func (d *debts) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if one == nil {
		return
	}
	one.all, one.forgotten = nil, one.booking != nil
	d.drop(name, one)
}

// giveBack gives units back to a lease that was taken at a time, and is not being booked. It
// reports whether there is one.
func (d *debts) giveBack(c *window.Charge, at, units int64) bool {
	if d.n.Load() == 0 {
		return false
	}
	name := nameOf(c)
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byName[name]
	if one == nil {
		return false
	}
	for _, own := range one.all {
		if own.decisions[0].At == at {
			own.left += min(units, own.used())
			return true
		}
	}
	return false
}

// dueNow returns at most `most` names of counters that may be booked in the background.
func (d *debts) dueNow(most int) (names []string) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.byName {
		if len(names) == most {
			break
		}
		if one.booking == nil && !now.Before(one.due) {
			names = append(names, name)
		}
	}
	return names
}

// ends reports whether the background is to end.
func (d *debts) ends() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = len(d.byName) > 0
	return !d.running
}

// run books debts in the background: one at first, then double the number each time, and one
// again after a failure. Few bookings are thus in flight when the server goes, and only for
// these is it unknown whether they were booked.
func (d *debts) run() {
	timer := time.NewTimer(debtAfter)
	defer timer.Stop()
	for size := 1; ; {
		select {
		case <-d.stop:
			return
		case <-timer.C:
		}
		if d.ends() {
			return
		}
		pause := debtAfter
		if names := d.dueNow(size); names != nil && (size > 1 || d.leases.env.Ping(context.Background()) == nil) {
			if d.bookAll(names) != nil {
				size = 1
			} else {
				size, pause = min(2*size, mostDebts), debtPause
			}
		}
		timer.Reset(pause)
	}
}

// bookAll books the debts on counters in one round trip. It returns an error that says
// something about the server.
func (d *debts) bookAll(names []string) (away error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.leases.env.Timeout)
	defer cancel()
	var all []*lease
	var own [][]*lease
	for _, name := range names {
		leases, _ := d.begin(name)
		own, all = append(own, leases), append(all, leases...)
	}
	errs := d.leases.book(ctx, all)
	for i, leases := range own {
		if leases == nil {
			continue // somebody else books it
		}
		if err := d.finish(names[i], leases, errs[:len(leases)]); err != nil && !errors.Is(err, window.ErrForeign) {
			away = err
		}
		errs = errs[len(leases):]
	}
	return away
}

// close ends the background, and books what is left. What cannot be booked is reported: a
// store that closes does not wait for each debt in turn.
func (d *debts) close() {
	d.mu.Lock()
	if !d.closed {
		close(d.stop)
	}
	d.closed = true
	d.mu.Unlock()
	d.group.Wait()
	for names := range slices.Chunk(d.names(), mostDebts) {
		if d.bookAll(names) != nil {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.byName {
		for _, own := range one.all {
			d.leases.unbooked(own, one.cause)
		}
		one.all = nil
		d.drop(name, one)
	}
}

// names returns the names of all counters on which there are debts.
func (d *debts) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.byName))
}
