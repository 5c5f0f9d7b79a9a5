// Package rtt estimates how long a round trip takes to servers that may be far away, and what there is
// time for.
package rtt

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Estimate is how long a round trip to the servers of a store takes: an average of the last ones
// that had an answer. 0 is not known.
type Estimate struct {
	timeout  time.Duration // of a call
	patience time.Duration // of a connection

	nanoseconds atomic.Int64
	shortest    atomic.Int64 // of the last ones, in nanoseconds
	last        atomic.Int64 // when an answer came, in Unix milliseconds
	lost        atomic.Int64 // when an answer had not come in time, in Unix milliseconds
}

// Get returns the average; 0: not known.
func (t *Estimate) Get() time.Duration { return time.Duration(t.nanoseconds.Load()) }

// Shortest returns the shortest of the last round trips: to the others, a busy server or client
// has added more. 0 is not known.
func (t *Estimate) Shortest() time.Duration { return time.Duration(t.shortest.Load()) }

// forgotten is how much of what the shortest round trip is shorter than each later one is forgotten
// with that: a part of this many.
const forgotten = 64

// Note takes one more into account, which began at a time. Of two that end at the same time,
// one may be lost.
func (t *Estimate) Note(start time.Time) {
	d := time.Since(start)
	t.last.Store(start.Add(d).UnixMilli())
	if shortest := t.shortest.Load(); shortest == 0 || int64(d) < shortest {
		t.shortest.Store(int64(d))
	} else {
		t.shortest.Store(shortest + (int64(d)-shortest)/forgotten)
	}
	old := t.nanoseconds.Load()
	if old == 0 {
		t.nanoseconds.Store(int64(d))
		return
	}
	t.nanoseconds.Store(old + (int64(d)-old)/4)
}

// Seed is Note for what is known before any call was made.
func (t *Estimate) Seed(d time.Duration) {
	t.nanoseconds.CompareAndSwap(0, int64(d))
	t.shortest.CompareAndSwap(0, int64(d))
}

// New returns a trip that is not known.
func New(timeout, patience time.Duration) *Estimate {
	return &Estimate{timeout: timeout, patience: patience}
}

// soon is a context for calls that have to wait for a connection. Done is closed when there
// would be no time for an answer any more: such a call is not sent, and the connection is
// there for the next one. Otherwise requests that wait for connections would get each of them
// too late, and it would be closed as no answer came in time.
type soon struct {
	context.Context           // ends then
	end             time.Time // until when an answer may come
}

// Deadline implements context.Context. The client reads until then.
func (s soon) Deadline() (time.Time, bool) { return s.end, true }

// InTime returns a soon of ctx, and what ends it. Where a round trip takes no more than a
// tenth of the timeout, that is ctx itself.
func (t *Estimate) InTime(ctx context.Context) (context.Context, func()) {
	trip := t.Get()
	end, ok := ctx.Deadline()
	if !ok || !t.IsFar() {
		return ctx, func() {}
	}
	latest, now := end.Add(-trip-trip/16), time.Now()
	if least := now.Add(time.Millisecond); latest.Before(least) {
		latest = least // for a connection that is there
	}
	early, cancel := context.WithDeadline(ctx, latest)
	return soon{early, end}, cancel
}

// NoConnection tells calls that could not be sent in time from those that a server did not
// answer, if the servers have answered others since, in the last second or so.
func (t *Estimate) NoConnection(ctx, early context.Context, calls []*wire.Call) {
	now, last := time.Now().UnixMilli(), t.last.Load()
	if !errors.As(calls[0].Err, new(failure.UnwrittenError)) {
		t.lost.Store(now)
	}
	if early.Err() == nil || ctx.Err() != nil || last <= t.lost.Load() || now-last > t.patience.Milliseconds() {
		return
	}
	for _, c := range calls {
		if errors.As(c.Err, new(failure.UnwrittenError)) && errors.Is(c.Err, context.DeadlineExceeded) {
			c.Err = failure.Unwritten(failure.ErrNoConnection)
		}
	}
}

// IsFar reports whether a connection takes so long that requests do not wait for it as others
// do.
func (t *Estimate) IsFar() bool { return t.Get() > t.timeout/10 }

// HasTimeFor reports whether this number of round trips fits into the time until the deadline of
// ctx. Close servers always have time.
func (t *Estimate) HasTimeFor(ctx context.Context, trips int64) bool {
	end, ok := ctx.Deadline()
	return !ok || !t.IsFar() || time.Duration(trips)*t.Get() < time.Until(end)
}
