package redis

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// flights is how many batches are under way at once: while the server works on
	// one, the next is written or the one before is read.
	flights = 2
	// crowd is how many have to wait at least for a second flight to take off. Fewer do
	// better to wait for the first: each flight costs all sides some time.
	crowd = 8
	// late is how long a flight may take before another one does not wait for a crowd:
	// its connection may be stuck.
	late = 5 * time.Millisecond
	// queueLength is how many requests wait for a flight at most.
	queueLength = 8192
)

// commit makes requests that come at the same time travel together. Nothing waits
// for company: a request that comes while no flight is under way goes at once, and
// those that come meanwhile go when it is back, or as soon as they are as many as fly, or
// it is late. Of two flights that are alike, the server has one to work on while the other
// one's callers come again; with a small one it would be done too soon.
//
// A flight is a goroutine. It ends when nobody waits any more, or too few to follow the
// other one, and within the timeout of the store. Who comes while none is under way flies
// alone: to wake a goroutine, and be woken, can take as long as half of the rest. One timer
// is for all who wait: they have the same time, so that the first to come are the first to go.
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
	t.charges, t.result.Decisions = charges, window.MakeDecisions(charges, room)
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

// end says how it ended for a ticket that waits or flies. Who calls it has to send
// done.
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

// leave is for a caller that goes.
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

// flight is what a flight takes along. It is used again for others. How many fly, and
// since when, changes under the lock of the commit, as those who wait go by it.
type flight struct {
	tickets  []*ticket
	since    time.Duration // when it took off
	requests [][]window.Charge
	round    round
	deadline *deadline
}

// fly takes off with those who wait until there are none, or too few.
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

// land is for the result of a ticket that flies. The flight uses its memory again.
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

// board takes as many as go in one call of the script. If nobody waits, or too few to
// follow others, it ends the flight.
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

// share returns how many go now of those who wait: half of all who wait and fly, if
// enough stay for another flight.
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

// fill has those board who have waited longest, so many of them at most.
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
