package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// goAlone returns a flight for a caller who comes while none is under way, or nil.
func (c *commit) goAlone() *flight {
	now := time.Since(c.began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flying > 0 {
		return nil
	}
	c.flying++
	f := c.ready()
	f.since = now
	c.aloft = append(c.aloft, f)
	return f
}

// alone decides on the request of a caller who flies. If ctx is cancelled, that is
// noticed when there is an answer, or no more time.
func (c *commit) alone(ctx context.Context, f *flight, charges []window.Charge, room []window.Decision) window.Result {
	timeout := c.store.timeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	f.requests = append(f.requests[:0], charges)
	f.deadline = startDeadline(f.deadline, timeout)
	r := c.store.decideIn(f.deadline, &f.round, "take", f.requests)[0]
	f.deadline = f.deadline.stop()
	switch err := ctx.Err(); {
	case r.Err == nil: // the flight uses its memory again
		r.Decisions = append(engine.MakeDecisions(charges, room)[:0], r.Decisions...)
	case err != nil && !errors.Is(r.Err, err):
		r.Err = fmt.Errorf("%w: %w", err, r.Err)
	}
	c.land(f, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest(f)
	if len(c.waiting) > 0 {
		c.takeOff(time.Since(c.began))
	}
	return r
}
