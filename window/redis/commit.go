package redis

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// flights is the number of batches in flight at once: while the server works on one,
	// the next is written or the one before is read.
	flights = 2
	// crowd is the smallest number of waiting requests that makes up a second batch. Fewer
	// wait for the first batch instead, since each batch costs all sides some time.
	crowd = 8
	// late is the age in flight after which a batch no longer makes others wait for a
	// crowd: its connection may be stuck.
	late = 5 * time.Millisecond
	// queueLength is the largest number of requests that wait for a batch.
	queueLength = 8192
)

// commit batches requests that come at the same time. A batch in flight is a flight, and a
// request that waits or is in flight is a ticket.
//
// No request waits in order to be batched. If no batch is in flight, a request is sent at
// once. Otherwise it waits for the first of:
//
//   - that batch returns;
//   - max(crowd, size of that batch) requests wait;
//   - that batch is older than late.
//
// Two batches of equal size keep the server busy while the callers of the other one return;
// with a small batch the server would be done too soon. Servers that are far away are sent
// more batches at once, see takeOffFar.
//
// Each batch is sent by a goroutine, which exits when the queue is empty or too short for a
// second batch. The batch ends within the timeout of the store. A request that finds nothing
// in flight is sent by its caller instead, which saves two goroutine switches: up to a third
// of the latency. All tickets share one timer: they have equal timeouts, so that they expire
// in order.
type commit struct {
	store   *Store
	flight  func()      // fly, as a value: go c.fly() would make one each time
	began   time.Time   // from which times are counted
	tickets sync.Pool   // of those whose callers got their result
	timer   *time.Timer // runs expire

	mu      sync.Mutex // guards all below, and what tickets say; held for a few instructions
	waiting []*ticket
	flying  int       // goroutines, and who flies alone
	aloft   []*flight // under way, in the order in which they took off
	idle    []*flight
	oldest  *ticket // of those that wait or fly
	newest  *ticket
	timed   bool // the timer is under way

	departure *time.Timer   // runs depart
	planned   bool          // it is under way
	left      time.Duration // when the last batch was sent; see takeOffFar
}

// ticket is a request that waits.
type ticket struct {
	charges []window.Charge
	result  window.Result // when it is answered; until then, room for the decisions
	done    chan struct{} // gets one value when it neither waits nor flies any more

	// Guarded by the lock of the commit, until then.
	state        ticketState
	until        time.Duration // when its time is up
	older, newer *ticket       // of those that wait or fly
}

// ticketState is where a ticket is. All but the first two end it.
type ticketState int8

const (
	waits      ticketState = iota
	flies                  // sent, or about to be
	answered               // has its result
	unsent                 // its caller has gone, and it will not be sent
	unanswered             // its caller has gone
)

// take decides on one request, together with others. In a Cluster every node has a
// commit of its own, for one that hangs not to stop the others; a request that
// several nodes decide on goes alone.
func (s *Store) take(ctx context.Context, charges []window.Charge, room []window.Decision) window.Result {
	server := ""
	if s.cluster {
		if !s.placed.Load() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.timeout)
			defer cancel()
		}
		for i := range charges {
			for k := range s.namings {
				address := s.home(ctx, &s.namings[k], &charges[i])
				if i+k > 0 && address != server {
					return s.decide(ctx, "take", [][]window.Charge{charges})[0]
				}
				server = address
			}
		}
	}
	return s.commit(server).take(ctx, charges, room)
}

// commit returns that of a server.
func (s *Store) commit(server string) *commit {
	if c, ok := s.commits.Load(server); ok {
		return c.(*commit)
	}
	c, _ := s.commits.LoadOrStore(server, newCommit(s))
	return c.(*commit)
}

func newCommit(s *Store) *commit {
	c := &commit{store: s, began: time.Now()}
	c.flight = c.fly
	c.timer = time.AfterFunc(time.Hour, c.expire)
	c.timer.Stop()
	c.departure = time.AfterFunc(time.Hour, c.depart)
	c.departure.Stop()
	c.tickets.New = func() any { return &ticket{done: make(chan struct{}, 1)} }
	return c
}

// take decides on one request. If its time is up, or that of ctx, before there is an
// answer, a flight may still read the charges.
func (c *commit) take(ctx context.Context, charges []window.Charge, room []window.Decision) window.Result {
	if ctx.Err() == nil {
		if f := c.goAlone(); f != nil {
			return c.alone(ctx, f, charges, room)
		}
	}
	t := c.tickets.Get().(*ticket)
	t.charges, t.result.Decisions = charges, engine.MakeDecisions(charges, room)
	if !c.queue(t) {
		return window.Result{Err: fmt.Errorf("%s: %w: %w", c.store.name, window.ErrUnavailable, window.ErrBusy)}
	}
	err := context.DeadlineExceeded
	select {
	case <-t.done:
	case <-ctx.Done():
		err = ctx.Err()
		c.leave(t)
		<-t.done
	}
	switch t.state {
	case unsent:
		return window.Result{Err: c.store.failUncharged(ctx, err)}
	case unanswered:
		return window.Result{Err: c.store.fail(ctx, err)}
	}
	result := t.result
	t.charges, t.result = nil, window.Result{}
	c.tickets.Put(t)
	return result
}

// queue has a ticket wait, and a flight take off if it should. It reports whether
// there was room.
func (c *commit) queue(t *ticket) bool {
	now := time.Since(c.began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == queueLength {
		return false
	}
	c.waiting = append(c.waiting, t)
	t.state, t.until = waits, now+c.store.timeout
	t.older, t.newer = c.newest, nil
	if c.newest == nil {
		c.oldest = t
	} else {
		c.newest.newer = t
	}
	c.newest = t
	if !c.timed {
		c.timed = true
		c.timer.Reset(c.store.timeout)
	}
	c.takeOff(now)
	return true
}

// takeOff starts a flight if those who wait may go.
func (c *commit) takeOff(now time.Duration) {
	if trip := c.store.trip.get(); trip > far {
		c.takeOffFar(now, trip)
		return
	}
	if c.flying == 0 || c.flying < flights && c.mayFollow(now) {
		c.flying++
		go c.flight()
	}
}

// mayFollow reports whether those who wait may go while others fly, or have just landed.
func (c *commit) mayFollow(now time.Duration) bool {
	if len(c.aloft) == 0 {
		return len(c.waiting) >= crowd
	}
	first := c.aloft[0]
	return len(c.waiting) >= max(crowd, len(first.tickets)) || now-first.since > late
}

// end moves a ticket that waits or flies to its last state. c.mu must be held. The caller
// must send to t.done.
func (c *commit) end(t *ticket, state ticketState) {
	t.state = state
	if t.older == nil {
		c.oldest = t.newer
	} else {
		t.older.newer = t.newer
	}
	if t.newer == nil {
		c.newest = t.older
	} else {
		t.newer.older = t.older
	}
}

// leave gives up the ticket of a caller whose ctx has ended.
func (c *commit) leave(t *ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUp(t)
}

// giveUp ends a ticket, unless that has happened.
func (c *commit) giveUp(t *ticket) {
	switch t.state {
	case waits:
		c.end(t, unsent)
	case flies:
		c.end(t, unanswered)
	default:
		return
	}
	t.done <- struct{}{}
}

// expire ends the tickets whose time is up.
func (c *commit) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.began)
	for t := c.oldest; t != nil; t = c.oldest {
		if t.until > now {
			c.timer.Reset(t.until - now)
			return
		}
		c.giveUp(t)
	}
	c.timed = false
}

// flight is a batch in flight. Its memory is reused for later batches. c.mu guards tickets
// and since, which decide when the next batch is sent.
type flight struct {
	tickets  []*ticket
	since    time.Duration // when it took off
	requests [][]window.Charge
	round    round
	deadline *deadline
}

// fly sends batches until the queue is empty or too short.
func (c *commit) fly() {
	c.mu.Lock()
	f := c.ready()
	c.mu.Unlock()
	for c.board(f) {
		// No caller waits longer than this.
		f.deadline = startDeadline(f.deadline, c.store.timeout)
		c.land(f, c.store.decideIn(f.deadline, &f.round, "take", f.requests))
		f.deadline = f.deadline.stop()
		if len(f.tickets) > 1 {
			runtime.Gosched() // those who have landed run first, and may come again
		}
	}
}

// land copies a result into a ticket that flies: the flight reuses the memory of r.
func (t *ticket) land(r window.Result) {
	if r.Err != nil {
		t.result = window.Result{Err: r.Err}
		return
	}
	t.result.Decisions = append(t.result.Decisions[:0], r.Decisions...)
}

// land gives the callers their results, but for those who have gone.
func (c *commit) land(f *flight, results []window.Result) {
	c.mu.Lock()
	c.aloft = slices.DeleteFunc(c.aloft, func(other *flight) bool { return other == f })
	for i, t := range f.tickets {
		if t.state == flies {
			c.end(t, answered)
			t.land(results[i])
		} else {
			f.tickets[i] = nil
		}
	}
	c.mu.Unlock()
	for _, t := range f.tickets {
		if t != nil {
			t.done <- struct{}{}
		}
	}
	clear(f.tickets)
	clear(f.requests)
}

// ready returns a flight that has landed, or a new one.
func (c *commit) ready() *flight {
	last := len(c.idle) - 1
	if last < 0 {
		return new(flight)
	}
	f := c.idle[last]
	c.idle = c.idle[:last]
	return f
}

// rest ends a flight.
func (c *commit) rest(f *flight) {
	c.flying--
	c.idle = append(c.idle, f)
}

// board fills f with the requests that fit into one call of the script, and reports whether
// there are any. If the queue is empty or too short, it ends f.
func (c *commit) board(f *flight) bool {
	f.tickets, f.requests = f.tickets[:0], f.requests[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	f.since = time.Since(c.began)
	if len(c.aloft) == 0 || c.store.trip.get() > far || c.mayFollow(f.since) {
		c.fill(f, c.share())
	}
	if len(f.tickets) == 0 {
		c.rest(f)
		return false
	}
	c.aloft = append(c.aloft, f)
	c.takeOff(f.since)
	return true
}

// share returns the number of waiting requests to send now: half of all that wait or fly, if
// the rest is enough for another batch; else all that wait. c.mu must be held.
func (c *commit) share() int {
	all := len(c.waiting)
	for _, f := range c.aloft {
		all += len(f.tickets)
	}
	if len(c.waiting)-all/2 < crowd {
		return len(c.waiting)
	}
	return all / 2
}

// fill moves at most `most` requests, oldest first, from the queue to f. c.mu must be held.
func (c *commit) fill(f *flight, most int) {
	weight, n := int64(0), 0
	for ; n < len(c.waiting) && len(f.tickets) < most; n++ {
		t := c.waiting[n]
		own := c.store.weightOf(t.charges)
		if len(f.tickets) > 0 && weight+own > batchWeight {
			break
		}
		if t.state == waits {
			weight += own
			t.state = flies
			f.tickets, f.requests = append(f.tickets, t), append(f.requests, t.charges)
		}
	}
	rest := copy(c.waiting, c.waiting[n:])
	clear(c.waiting[rest:])
	c.waiting = c.waiting[:rest]
}
