package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// trip is how long a round trip to the servers of a store takes: an average of the last ones
// that had an answer. 0 is not known.
type trip struct {
	nanoseconds atomic.Int64
	last        atomic.Int64 // when an answer came, in Unix milliseconds
	lost        atomic.Int64 // when an answer had not come in time, in Unix milliseconds
}

func (t *trip) get() time.Duration { return time.Duration(t.nanoseconds.Load()) }

// note takes one more into account, which began at a time. Of two that end at the same time,
// one may be lost.
func (t *trip) note(start time.Time) {
	d := time.Since(start)
	t.last.Store(start.Add(d).UnixMilli())
	old := t.nanoseconds.Load()
	if old == 0 {
		t.nanoseconds.Store(int64(d))
		return
	}
	t.nanoseconds.Store(old + (int64(d)-old)/4)
}

// guess is note for what is known before any call was made.
func (t *trip) guess(d time.Duration) { t.nanoseconds.CompareAndSwap(0, int64(d)) }

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

// inTime returns a soon of ctx, and what ends it. Where a round trip takes no more than a
// tenth of the timeout, that is ctx itself.
func (s *Store) inTime(ctx context.Context) (context.Context, func()) {
	trip := s.trip.get()
	end, ok := ctx.Deadline()
	if !ok || !s.isFar() {
		return ctx, func() {}
	}
	latest, now := end.Add(-trip-trip/16), time.Now()
	if least := now.Add(time.Millisecond); latest.Before(least) {
		latest = least // for a connection that is there
	}
	early, cancel := context.WithDeadline(ctx, latest)
	return soon{early, end}, cancel
}

// errNoConnection is the error of a call that had no connection in time to a far server that
// answers. It is ErrBusy: the breaker must not open while the server answers.
var errNoConnection = fmt.Errorf("%w: a connection is still being made: %w", window.ErrBusy, context.DeadlineExceeded)

// noConnection tells calls that could not be sent in time from those that a server did not
// answer, if the servers have answered others since, in the last second or so.
func (s *Store) noConnection(ctx, early context.Context, calls []*call) {
	now, last := time.Now().UnixMilli(), s.trip.last.Load()
	if !errors.As(calls[0].err, new(unwritten)) {
		s.trip.lost.Store(now)
	}
	if early.Err() == nil || ctx.Err() != nil || last <= s.trip.lost.Load() || now-last > s.patience.Milliseconds() {
		return
	}
	for _, c := range calls {
		if errors.As(c.err, new(unwritten)) && errors.Is(c.err, context.DeadlineExceeded) {
			c.err = unwritten{errNoConnection}
		}
	}
}

// HasTimeFor reports whether this number of round trips fits into the time until the deadline of
// ctx. Close servers always have time.
func (s *Store) HasTimeFor(ctx context.Context, trips int64) bool {
	end, ok := ctx.Deadline()
	return !ok || !s.isFar() || time.Duration(trips)*s.trip.get() < time.Until(end)
}

// far is the round trip above which requests do not wait for a batch to come back: that wait
// and their own call might not fit into the timeout. Instead, batches are sent at even
// intervals, so that each connection of the pool has one in flight.
const far = 2 * late

// mostFar is how many batches are under way to a server at most.
const mostFar = 64

// takeOffFar is takeOff for a server that is far away. Two batches that are overdue may be
// all that is sent to a server that has stopped answering.
func (c *commit) takeOffFar(now, trip time.Duration) {
	most := c.store.connections()
	switch {
	case len(c.waiting) == 0 || c.flying >= most:
		return
	case c.flying >= flights && len(c.aloft) > 0 && now-c.aloft[0].since > 2*trip:
		return
	}
	if n := len(c.aloft); n > 0 {
		c.left = max(c.left, c.aloft[n-1].since)
	}
	if next := c.left + trip/time.Duration(most); c.flying > 0 && now < next {
		if !c.planned {
			c.planned = true
			c.departure.Reset(next - now)
		}
		return
	}
	c.left = now
	c.flying++
	go c.flight()
}

// depart runs when a batch may be sent that had to wait.
func (c *commit) depart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planned = false
	c.takeOff(time.Since(c.began))
}

// connections returns how many the client makes to a server at most, within reason.
func (s *Store) connections() int {
	switch c := s.client.(type) {
	case *goredis.Client:
		return min(max(c.Options().PoolSize, flights), mostFar)
	case *goredis.ClusterClient:
		return min(max(c.Options().PoolSize, flights), mostFar)
	}
	return flights
}

// spares is a hook of the client of one server. Where that is far away, it keeps connections
// that nobody uses: a request has no time to wait for one.
type spares struct {
	store  *Store
	server *goredis.Client
	making atomic.Bool // some are being made
}

// DialHook implements goredis.Hook.
func (*spares) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements goredis.Hook.
func (p *spares) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		p.keep()
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (p *spares) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		p.keep()
		return err
	}
}

// keep has more connections made if too few are idle: three, and one for four that there are.
func (p *spares) keep() {
	if !p.store.isFar() || p.making.Load() {
		return
	}
	stats := p.server.PoolStats()
	missing := min(3+int(stats.TotalConns)/4, p.server.Options().PoolSize-int(stats.TotalConns-stats.IdleConns)) - int(stats.IdleConns)
	if missing <= 0 || !p.making.CompareAndSwap(false, true) {
		return
	}
	if !p.store.background.run(func() {
		defer p.making.Store(false)
		p.add(missing + int(stats.IdleConns))
	}) {
		p.making.Store(false)
	}
}

// add sends a command on each of n connections at once. Missing connections are opened.
func (p *spares) add(n int) {
	ctx, cancel := context.WithTimeout(p.store.background.ctx, p.store.patience)
	defer cancel()
	var group sync.WaitGroup
	for range n {
		group.Go(func() { _ = p.server.Time(ctx).Err() })
	}
	group.Wait()
}

// isFar reports whether a connection takes so long that requests do not wait for it as others
// do.
func (s *Store) isFar() bool { return s.trip.get() > s.timeout/10 }
