package leases

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fetch is a lease that is being taken. Those who need it wait for done.
type fetch struct {
	done   chan struct{}
	err    error
	charge *window.Charge // of the request that takes it
	reset  bool           // its counter was reset before done: it is unknown whether the lease is booked
}

// Take decides on a charge of e with the units of a lease. Without decisions or an
// error, the server has to be asked; until end, if time has gone by already.
func (l *Leases) Take(ctx context.Context, e *Holder, c *window.Charge, room []window.Decision) (_ []window.Decision, end time.Time, _ error) {
	life := l.lifetime(c)
	if life < time.Millisecond || c.Cost == 0 || c.Cost > c.Lease.Units/2 {
		return nil, end, nil // a lease is worth its trouble to two such requests
	}
	for {
		e.mu.Lock()
		now := l.Now()
		switch f, own := e.fetch, e.lease; {
		case e.gone:
			e.mu.Unlock()
			return nil, end, nil
		case own != nil && own.lives(now) && own.left >= c.Cost:
			left := own.spend(c.Cost, now)
			e.seen = now.Steady
			e.mu.Unlock()
			return own.decide(left, now, room), end, nil
		case f != nil:
			e.mu.Unlock()
			if err := l.wait(ctx, f, &end); err != nil {
				return nil, end, err
			}
			continue
		}
		if e.lease != nil {
			l.end(e)
		}
		if l.debts.has(c) {
			e.mu.Unlock()
			if err := l.Repay(ctx, &end, *c); err != nil {
				return nil, end, err
			}
			continue
		}
		size := e.grow(c, now.Steady, life)
		if size < 2*c.Cost {
			e.mu.Unlock()
			return nil, end, nil
		}
		f := &fetch{done: make(chan struct{}), charge: c}
		e.fetch = f
		e.mu.Unlock()
		if end.IsZero() {
			end = time.Now().Add(l.env.Timeout)
		}
		ds, err := l.fetch(ctx, e, f, c, size, life, now, end)
		return ds, end, err
	}
}

// wait waits for a lease that another request takes. The first wait needs no timer: the
// other has waited for longer, and no longer than the timeout. It sets the end of those
// that follow.
func (l *Leases) wait(ctx context.Context, f *fetch, end *time.Time) error {
	if end.IsZero() {
		*end = time.Now().Add(l.env.Timeout)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, *end)
		defer cancel()
	}
	select {
	case <-f.done:
		return engine.NotSent(f.err)
	case <-ctx.Done():
		return l.env.Fail(ctx, ctx.Err()) // what is charged is the lease
	}
}

// fetch takes a lease until end, and spends the charge's cost of it. The caller may go,
// but the lease is taken all the same: what is booked has to end.
func (l *Leases) fetch(ctx context.Context, e *Holder, f *fetch, c *window.Charge, size int64, life time.Duration, sent Clocks, end time.Time) ([]window.Decision, error) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	whole := *c
	whole.Key, whole.Policies = strings.Clone(c.Key), slices.Clone(c.Policies) // they outlive the request
	whole.Cost = size
	r := l.env.Take(ctx, []window.Charge{whole}, nil)
	if errors.Is(r.Err, window.ErrUnknown) {
		l.env.Report(fmt.Errorf("zone %q: a lease of %d units may stay booked, and no process has it: %w", c.Zone, size, r.Err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(f.done)
	e.fetch = nil
	now := l.Now()
	switch {
	case r.Err != nil:
		f.err = r.Err
		return nil, r.Err
	case !window.Allowed(r.Decisions):
		e.remaining, e.pause = leastRemaining(r.Decisions), now.Steady+life
		return nil, nil
	}
	e.remaining = leastRemaining(r.Decisions)
	own := &lease{charge: whole, decisions: r.Decisions, left: size, taken: sent, life: life}
	e.lease = own
	own.timer = time.AfterFunc(life-now.since(sent), func() { l.expire(e, own) })
	var ds []window.Decision
	if own.lives(now) { // else this process may have been stopped, and no request gets anything
		ds = own.decide(own.spend(c.Cost, now), now, nil)
	}
	if ds == nil || f.reset || e.gone {
		l.end(e)
	}
	return ds, nil
}

// AnswerLocally returns what a lease would say to a request of this charge before its cost is handed
// out, or nil if there is no lease for it.
func (l *Leases) AnswerLocally(c *window.Charge) []window.Decision {
	if c.Cost == 0 || c.Cost > c.Lease.Units/2 || l.lifetime(c) == 0 {
		return nil // as take does
	}
	e := l.of(c)
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := l.Now()
	if own := e.lease; !e.gone && own != nil && own.lives(now) && own.left >= c.Cost {
		return own.decide(own.left, now, nil)
	}
	return nil
}
