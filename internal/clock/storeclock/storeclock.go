// Package storeclock has the clocks of stores: the ends of overrides and of orders go by them, so that they are the
// same on all Caddys that share a store.
package storeclock

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
)

// Clock is the clock of a store as this process knows it. Before Learn it is the clock of this process, which it stays for a
// store without a server. All methods are safe for concurrent use; Now and Milli accept a nil Clock, which was told nothing.
//
// Between two calls of Learn it goes by [uptime.Now], so that a step of this process's time of day changes nothing.
type Clock struct {
	// Wall returns the time of day of this process. Nil: time.Now. Tests set it before the first use.
	Wall func() time.Time

	ahead atomic.Int64 // nanoseconds of Unix time less those of uptime; 0: not known, for no store tells 1970

	mu   sync.Mutex    // held by Learn; guards took
	took time.Duration // the answer from which ahead is known
}

// clocks has a clock for each name of a store that this process has used. They are few, and outlive reloads: one in an
// outage does not forget what the store's time is.
var clocks sync.Map

// Of returns the clock of the store with a name.
func Of(store string) *Clock {
	store = strings.ToValidUTF8(store, "\uFFFD") // as in labels and logs
	c, ok := clocks.Load(store)
	if !ok {
		c, _ = clocks.LoadOrStore(store, new(Clock))
	}
	return c.(*Clock)
}

// Learn notes what the store answered when it was asked for its time. The times asked and answered are of [uptime.Now]. The
// answer is taken to be of halfway between them, unless what is known from a faster one agrees with it. Learn returns by
// how much the clock has moved.
func (c *Clock) Learn(at time.Time, asked, answered time.Duration) (moved time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := answered - asked
	earliest := at.UnixNano() - int64(answered)
	ahead := c.ahead.Load()
	if ahead != 0 && took > c.took && ahead >= earliest && ahead <= earliest+int64(took) {
		return 0
	}
	if ahead == 0 {
		ahead = c.own().UnixNano() - int64(uptime.Now())
	}
	next := earliest + int64(took)/2
	c.ahead.Store(next)
	c.took = took
	return time.Duration(next - ahead)
}

// Now returns the time by the store's clock.
func (c *Clock) Now() time.Time {
	if ahead := c.known(); ahead != 0 {
		return time.Unix(0, ahead+int64(uptime.Now()))
	}
	return c.own()
}

// Milli returns Now in milliseconds of Unix time. Requests call it: it reads one clock.
func (c *Clock) Milli() int64 {
	if ahead := c.known(); ahead != 0 {
		return (ahead + int64(uptime.Now())) / int64(time.Millisecond)
	}
	return c.own().UnixMilli()
}

// known returns c.ahead; 0 if the time of the store is not known.
func (c *Clock) known() int64 {
	if c == nil {
		return 0
	}
	return c.ahead.Load()
}

// own returns the time of day of this process.
func (c *Clock) own() time.Time {
	if c == nil || c.Wall == nil {
		return time.Now()
	}
	return c.Wall()
}
