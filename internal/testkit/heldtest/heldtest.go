// Package heldtest has several processes take all units of a counter that they can get at the same time, and counts them.
package heldtest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Census counts the units of a counter that all processes hold, as those know that hold them.
type Census struct {
	limit int

	mu             sync.Mutex // guards what follows
	open, admitted int
	most           int
	over           []time.Time
}

// New returns a Census of a counter with a limit.
func New(limit int) *Census { return &Census{limit: limit} }

// Enter counts a unit that was admitted.
func (c *Census) Enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.admitted++
	if c.most = max(c.most, c.open); c.open > c.limit {
		c.over = append(c.over, time.Now())
	}
}

// Leave undoes Enter, before the unit is given back.
func (c *Census) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// Now returns how many units are held, and how many were admitted so far.
func (c *Census) Now() (open, admitted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, c.admitted
}

// Process takes units and gives them back.
type Process struct {
	Take func() bool
	Free func()
}

// Keep takes a number of units for each process, and holds them until the function that it returns has run.
func (c *Census) Keep(tb testing.TB, n int, processes ...Process) (end func()) {
	tb.Helper()
	for _, p := range processes {
		for range n {
			for start := time.Now(); !p.Take(); time.Sleep(5 * time.Millisecond) { // an answer may be late
				if time.Since(start) > 20*time.Second {
					tb.Fatalf("not all of %d units for each process are admitted", n)
				}
			}
			c.Enter()
		}
	}
	return func() {
		for _, p := range processes {
			for range n {
				c.Leave()
				p.Free()
			}
		}
	}
}

// Press has requests of each process, one for each unit of the limit, take a unit as soon as they can and hold it for up to
// half a second, until the function that it returns has run.
func (c *Census) Press(tb testing.TB, processes ...Process) (end func()) {
	stop := make(chan struct{})
	var group sync.WaitGroup
	for _, p := range processes {
		for range c.limit {
			group.Go(func() { c.press(p, stop) })
		}
	}
	end = sync.OnceFunc(func() {
		close(stop)
		group.Wait()
	})
	tb.Cleanup(end)
	return end
}

func (c *Census) press(p Process, stop <-chan struct{}) {
	for isOver := false; !isOver; {
		passes, pause := p.Take(), 5*time.Millisecond
		if passes {
			c.Enter()
			pause = time.Duration(50+rand.IntN(450)) * time.Millisecond
		}
		select {
		case <-stop:
			isOver = true
		case <-time.After(pause):
		}
		if passes {
			c.Leave()
			p.Free()
		}
	}
}

// Healed is how soon after the server decides again no unit above the limit is admitted.
const Healed = time.Second

// Check holds that no more than a number of units was admitted above the limit, and none later than Healed after a time.
func (c *Census) Check(tb testing.TB, lost int, back time.Time) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	over, last := max(0, c.most-c.limit), time.Duration(0)
	if over > lost {
		tb.Errorf("%d units above the limit, want %d at most", over, lost)
	}
	if len(c.over) > 0 {
		last = c.over[len(c.over)-1].Sub(back)
	}
	if last > Healed {
		tb.Errorf("a unit above the limit was admitted %s after Redis was back", last)
	}
	tb.Logf("%d admitted; at most %d above the limit of %d, the last of %d such admissions %s after Redis was back",
		c.admitted, over, c.limit, len(c.over), last.Round(time.Millisecond))
}
