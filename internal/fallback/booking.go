package fallback

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// bookAfter is how long the background waits before it books, so that requests may
	// come first, and how often it looks whether a store answers again.
	bookAfter = 100 * time.Millisecond
	// bookAgain is how long a counter waits that could not be booked.
	bookAgain = 500 * time.Millisecond
	// bookPause is the time between two rounds, and bookMost how many counters are booked
	// in one, at the same time: 6,400 a second at most, which take about a tenth of
	// a server's time.
	bookPause = 5 * time.Millisecond
	bookMost  = 32
	// bookLast is how long the last guard books when it is closed.
	bookLast = time.Second
)

// background books what is owed on counters that nobody asks for here, for other
// processes to see it. One goroutine does so, as long as something is owed and a guard is
// open.
type background struct {
	mostDebtors int // of each shard

	listed atomic.Int64  // debtors
	busy   atomic.Bool   // the goroutine runs
	wake   chan struct{} // has a value when a guard has been closed
	group  sync.WaitGroup

	mu     sync.Mutex // guards guards, and what makes busy change
	guards []*Guard   // open ones
}

// register makes the background use a guard.
func (c *Counts) register(g *Guard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guards = append(c.guards, g)
	c.awake()
}

// unregister undoes register. It returns when g is not used any more, and reports whether g was
// the last guard.
func (c *Counts) unregister(g *Guard) (last bool) {
	c.mu.Lock()
	for i, other := range c.guards {
		if other == g {
			c.guards = append(c.guards[:i:i], c.guards[i+1:]...)
			last = len(c.guards) == 0
			break
		}
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	c.mu.Unlock()
	g.booking.Wait()
	return last
}

// bookLater has the background run.
func (c *Counts) bookLater() {
	if !c.busy.Load() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.awake()
	}
}

// awake starts the background unless it runs, or there is nothing to do. mu must be held.
func (c *Counts) awake() {
	if !c.busy.Load() && c.listed.Load() > 0 && len(c.guards) > 0 {
		c.busy.Store(true)
		c.group.Go(c.bookAll)
	}
}

// atRest reports whether the background is to end.
func (c *Counts) atRest() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listed.Load() > 0 && len(c.guards) > 0 {
		return false
	}
	c.busy.Store(false)
	c.awake() // somebody may have seen that it runs, and added a debtor
	return true
}

// bookAll books in rounds: one counter at first, then double the number each time, and one
// again after a failure. Few bookings are thus in flight when a store goes, and only for
// these is it unknown whether they were booked.
func (c *Counts) bookAll() {
	timer := time.NewTimer(bookAfter)
	defer timer.Stop()
	for size := 1; !c.atRest(); {
		select {
		case <-timer.C:
		case <-c.wake:
			continue
		}
		pause := bookAfter
		if g := c.borrow(); g != nil {
			now := c.now()
			switch booked, err := g.bookSome(size, now, now+bookAgain.Milliseconds()); {
			case err != nil:
				size = 1
			case booked > 0:
				size, pause = min(2*size, bookMost), bookPause
			}
			g.booking.Done()
		}
		timer.Reset(pause)
	}
}

// borrow returns the newest guard whose store is not known to be away, or nil. Its
// booking has to be done.
func (c *Counts) borrow() *Guard {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.guards) - 1; i >= 0; i-- {
		if g := c.guards[i]; !g.breaker.Open() {
			g.booking.Add(1)
			return g
		}
	}
	return nil
}

// bookSome books what is owed on counters that are due at a time in ms: the first ones, at
// the same time. Those that fail are due again at another time. It returns how many there
// were, and an error that says something new about the store: a counter on a part of it that
// is known to be away does not slow down the others.
func (g *Guard) bookSome(most int, now, again int64) (n int, err error) {
	errs := make([]error, most)
	var group sync.WaitGroup
	for ; n < most; n++ {
		d := g.first(now, again)
		if d == nil {
			break
		}
		place := &errs[n]
		group.Go(func() { *place = g.bookOne(d.charge) })
	}
	group.Wait()
	for _, one := range errs {
		switch {
		case one == nil, errors.Is(one, window.ErrForeign), errors.Is(one, window.ErrInvalid), errors.Is(one, breaker.ErrOpen):
		default:
			err = one
		}
	}
	return n, err
}

// bookOne does what a request would that only looks at the counter: what is owed is booked,
// and what the store then says is kept.
func (g *Guard) bookOne(c window.Charge) error {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(g.timeout(), bookLast))
	defer cancel()
	_, err := g.repayAndTake(ctx, []window.Charge{c}, nil)
	return err
}

// bookRest books all that is owed, when no other guard will: once each, until the store
// fails, or for bookLast.
func (g *Guard) bookRest() {
	end, due := time.Now().Add(bookLast), g.now()+bookAgain.Milliseconds()
	for size := 1; time.Now().Before(end) && !g.breaker.Open(); size = min(2*size, bookMost) {
		if n, err := g.bookSome(size, due, due+1); n == 0 || err != nil {
			return
		}
	}
}
