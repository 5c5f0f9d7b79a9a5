package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// trySolo returns a batch for a caller who comes while none is in flight, or nil.
func (b *Batcher) trySolo() *batch {
	now := time.Since(b.began)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runners > 0 {
		return nil
	}
	b.runners++
	own := b.ready()
	own.since = now
	b.inFlight = append(b.inFlight, own)
	return own
}

// solo decides on the request of a caller who sends it. If ctx is cancelled, that is noticed
// when there is an answer, or no more time.
func (b *Batcher) solo(ctx context.Context, own *batch, charges []window.Charge, room []window.Decision) window.Result {
	timeout := b.env.Timeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	own.requests = append(own.requests[:0], charges)
	own.deadline = startDeadline(own.deadline, timeout)
	r := own.decide(own.deadline, own.requests)[0]
	own.deadline = own.deadline.stop()
	switch err := ctx.Err(); {
	case r.Err == nil: // the batch uses its memory again
		r.Decisions = append(engine.MakeDecisions(charges, room)[:0], r.Decisions...)
	case err != nil && !errors.Is(r.Err, err):
		r.Err = fmt.Errorf("%w: %w", err, r.Err)
	}
	b.deliver(own, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest(own)
	if len(b.waiting) > 0 {
		b.start(time.Since(b.began))
	}
	return r
}
