package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// flights is how many batches are under way at once: while the server works on
	// one, the next is written or the one before is read.
	flights = 2
	// crowd is how many have to wait for the second flight to take off. Fewer do
	// better to wait for the first: each flight costs all sides some time.
	crowd = 24
	// late is how long the first flight may take before the second one does not wait
	// for a crowd: its connection may be stuck.
	late = 5 * time.Millisecond
	// queueLength is how many requests wait for a flight at most.
	queueLength = 8192
)

// commit makes requests that come at the same time travel together. Nothing waits
// for company: a request that comes while no flight is under way goes at once, and
// those that come meanwhile go when it is back, or as soon as they are a crowd, or it
// is late.
//
// A flight is a goroutine. It ends when nobody waits any more, and within the
// timeout of the store.
type commit struct {
	store   *Store
	flight  func()    // fly, as a value: go c.fly() would make one each time
	tickets sync.Pool // of those whose callers got their result

	mu      sync.Mutex // guards all below; held for a few instructions
	waiting []*ticket
	flying  int
	since   time.Time // when the last one took off
	idle    []*flight
}

// ticket is a request that waits.
type ticket struct {
	charges []window.Charge
	timer   *time.Timer // until the caller goes
	state   atomic.Int32
	result  window.Result
	done    chan struct{} // gets one value when result is there
}

// The states of a ticket. Of caller and flight, the one that changes it first wins.
const (
	waits int32 = iota
	flies
	left
)

// take decides on one request, together with others. In a Cluster every node has a
// commit of its own, for one that hangs not to stop the others; a request that
// several nodes decide on goes alone.
func (s *Store) take(ctx context.Context, charges []window.Charge) window.Result {
	server := ""
	if s.cluster {
		for i := range charges {
			for k := range s.namings {
				address := s.address(ctx, string(s.namings[k].appendKey(nil, &charges[i])))
				if i+k > 0 && address != server {
					return s.decide(ctx, "take", [][]window.Charge{charges})[0]
				}
				server = address
			}
		}
	}
	return s.commit(server).take(ctx, charges)
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
	c := &commit{store: s}
	c.flight = c.fly
	c.tickets.New = func() any {
		t := &ticket{timer: time.NewTimer(time.Hour), done: make(chan struct{}, 1)}
		t.timer.Stop()
		return t
	}
	return c
}

// take decides on one request.
func (c *commit) take(ctx context.Context, charges []window.Charge) window.Result {
	t := c.tickets.Get().(*ticket)
	t.charges = charges
	t.state.Store(waits)
	c.mu.Lock()
	if len(c.waiting) == queueLength {
		c.mu.Unlock()
		return window.Result{Err: fmt.Errorf("%s: %w: %w", c.store.name, window.ErrUnavailable, window.ErrBusy)}
	}
	c.waiting = append(c.waiting, t)
	if c.flying == 0 || c.flying < flights && (len(c.waiting) >= crowd || time.Since(c.since) > late) {
		c.flying++
		go c.flight()
	}
	c.mu.Unlock()
	return c.wait(ctx, t)
}

// wait returns when the ticket has its result, or its time is up. The flight may
// then still read the charges.
func (c *commit) wait(ctx context.Context, t *ticket) window.Result {
	t.timer.Reset(c.store.timeout)
	err := context.DeadlineExceeded
	select {
	case <-t.done:
		t.timer.Stop()
		result := t.result
		t.charges, t.result = nil, window.Result{}
		c.tickets.Put(t)
		return result
	case <-ctx.Done():
		err = ctx.Err()
		t.timer.Stop()
	case <-t.timer.C:
	}
	if t.state.CompareAndSwap(waits, left) {
		return window.Result{Err: c.store.failUncharged(ctx, err)}
	}
	return window.Result{Err: c.store.fail(ctx, err)}
}

// flight is what a flight takes along. It is used again for others.
type flight struct {
	tickets  []*ticket
	requests [][]window.Charge
	round    round
	deadline *deadline
}

// fly takes off with those who wait until nobody does.
func (c *commit) fly() {
	f := c.ready()
	for c.board(f) {
		// No caller waits longer than this.
		f.deadline = startDeadline(f.deadline, c.store.timeout)
		results := c.store.decideIn(f.deadline, &f.round, "take", f.requests)
		f.deadline = f.deadline.stop()
		for i, t := range f.tickets {
			t.result = results[i]
			t.done <- struct{}{}
		}
		clear(f.tickets)
		clear(f.requests)
	}
}

// ready returns a flight that has landed, or a new one.
func (c *commit) ready() *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		return new(flight)
	}
	f := c.idle[last]
	c.idle = c.idle[:last]
	return f
}

// board takes as many as go in one call of the script. If nobody waits, it ends the
// flight.
func (c *commit) board(f *flight) bool {
	f.tickets, f.requests = f.tickets[:0], f.requests[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	weight, n := int64(0), 0
	for ; n < len(c.waiting); n++ {
		t := c.waiting[n]
		own := c.store.weightOf(t.charges)
		if len(f.tickets) > 0 && weight+own > batchWeight {
			break
		}
		if t.state.CompareAndSwap(waits, flies) {
			weight += own
			f.tickets, f.requests = append(f.tickets, t), append(f.requests, t.charges)
		}
	}
	rest := copy(c.waiting, c.waiting[n:])
	clear(c.waiting[rest:])
	c.waiting = c.waiting[:rest]
	if len(f.tickets) == 0 {
		c.flying--
		c.idle = append(c.idle, f)
		return false
	}
	c.since = time.Now()
	return true
}
