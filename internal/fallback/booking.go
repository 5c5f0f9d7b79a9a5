package fallback

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
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

// background are the open guards, one of which books what is owed on counters that no request asks for here, for other
// processes to see it.
type background struct {
	mu     sync.Mutex
	guards []*Guard
}

// register makes the background use a guard.
func (c *Counts) register(g *Guard) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guards = append(c.guards, g)
	c.debtors.Open()
}

// unregister undoes register. It returns when g is not used any more, and reports whether g was
// the last guard.
func (c *Counts) unregister(g *Guard) (last bool) {
	c.mu.Lock()
	if i := slices.Index(c.guards, g); i >= 0 {
		c.guards = slices.Delete(c.guards, i, i+1)
		last = len(c.guards) == 0
		c.debtors.Close()
	}
	c.mu.Unlock()
	g.booking.Wait()
	return last
}

// book books what is owed on counters that are due, by the newest guard whose store is not known to be away.
func (c *Counts) book(most int, due time.Time) (int, error) {
	g := c.borrow()
	if g == nil {
		return 0, nil
	}
	defer g.booking.Done()
	return g.bookSome(most, due)
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

// bookSome books what is owed on counters that are due at a time, at the same time. It returns how
// many there were, and an error that says something new about the store: a counter on a part of it that
// is known to be away does not slow down the others.
func (g *Guard) bookSome(most int, due time.Time) (n int, err error) {
	hashes := g.debtors.Due(most, due)
	errs := make([]error, len(hashes))
	var group sync.WaitGroup
	for i, hash := range hashes {
		group.Go(func() { errs[i] = g.bookOne(hash) })
	}
	group.Wait()
	for _, one := range errs {
		switch {
		case one == nil, errors.Is(one, window.ErrForeign), errors.Is(one, window.ErrInvalid), errors.Is(one, breaker.ErrOpen):
		default:
			err = one
		}
	}
	return len(hashes), err
}

// bookOne does what a request would that only looks at the counter: what is owed is booked,
// and what the store then says is kept.
func (g *Guard) bookOne(hash uint64) error {
	var c window.Charge
	if !g.debtors.Change(hash, func(d *debtor) { c = d.charge }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(g.timeout(), bookLast))
	defer cancel()
	_, err := g.repayAndTake(ctx, []window.Charge{c}, nil)
	return err
}

// bookRest books all that is owed, when no other guard will: once each, until the store
// fails, or for bookLast.
func (g *Guard) bookRest() {
	end := time.Now().Add(bookLast)
	g.debtors.Rest(func(most int, due time.Time) (int, error) {
		if g.breaker.Open() || time.Now().After(end) {
			return 0, nil
		}
		return g.bookSome(most, due)
	})
}
