package leases_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/leases"
)

const timeout = 100 * time.Millisecond

var errAway = fmt.Errorf("%w: refused", window.ErrUnavailable)

// site has leases, and a server that decides in this process.
type site struct {
	*leases.Leases
	store *memory.Store
	ahead atomic.Int64 // of time.Now, the clocks of all
	wall  atomic.Int64 // of ahead, the clock on the wall of this process
	there atomic.Int64 // of ahead, the clock of the server

	mu       sync.Mutex // guards what follows
	fails    error      // of calls, which then do nothing
	slow     time.Duration
	answered func() // runs once, when the server has decided on the next request
	bookings int    // calls
	calls    []string
	reports  []error
}

// inBubble runs a test with leases, in a time of its own.
func inBubble(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		test(t, s)
		s.become(nil)
		s.Drain()
		s.Close()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func newSite() *site {
	s := new(site)
	s.store = memory.New(memory.Options{Now: s.now})
	start := time.Now()
	s.Leases = leases.New(leases.Env{
		Now: func() leases.Clocks {
			steady := time.Since(start) + time.Duration(s.ahead.Load())
			return leases.Clocks{Steady: steady, Wall: steady + time.Duration(s.wall.Load())}
		},
		Timeout: timeout,
		Take:    s.decide,
		Peek: func(ctx context.Context, requests [][]window.Charge) []window.Result {
			results := make([]window.Result, len(requests))
			for i, charges := range requests {
				if results[i].Err = s.fault(ctx); results[i].Err == nil {
					results[i].Decisions, results[i].Err = s.store.Peek(ctx, charges)
				}
			}
			return results
		},
		Book:   s.book,
		Ping:   s.fault,
		Weight: func([]window.Charge) int64 { return 1 },
		Fail:   func(_ context.Context, err error) error { return fmt.Errorf("%w: %w", window.ErrUnavailable, err) },
		Report: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reports = append(s.reports, err)
		},
	})
	return s
}

func (s *site) now() int64 { return time.Now().UnixMilli() + (s.ahead.Load()+s.there.Load())/1e6 }

// become makes all calls fail from now on; nil: none.
func (s *site) become(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// fault waits as long as the server takes, and returns why it does not do anything.
func (s *site) fault(ctx context.Context) error {
	s.mu.Lock()
	slow, err := s.slow, s.fails
	s.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return errors.Join(window.ErrUnavailable, ctx.Err())
		}
	}
	return err
}

func (s *site) decide(ctx context.Context, charges []window.Charge, _ []window.Decision) (r window.Result) {
	if r.Err = s.fault(ctx); r.Err != nil {
		return r
	}
	s.called("take")
	r.Decisions, r.Err = s.store.Take(ctx, charges)
	s.mu.Lock()
	answered := s.answered
	s.answered = nil
	s.mu.Unlock()
	if answered != nil {
		answered()
	}
	return r
}

func (s *site) called(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, what)
	if what == "book" {
		s.bookings++
	}
}

func (s *site) book(ctx context.Context, all []leases.Booking) []error {
	errs := make([]error, len(all))
	fault := s.fault(ctx)
	s.called("book")
	for i, b := range all {
		if errs[i] = fault; fault == nil {
			errs[i] = errors.Join(s.store.ChargeMore(ctx, *b.Charge, b.Used), s.store.GiveBack(ctx, *b.Charge, b.At, b.Charge.Cost))
		}
	}
	return errs
}

// ask does what the store does with a request.
func (s *site) ask(ctx context.Context, c window.Charge) ([]window.Decision, error) {
	holder := s.Holder(&c)
	ds, end, err := s.Take(ctx, holder, &c, nil)
	if ds != nil || err != nil {
		return ds, err
	}
	if s.Owes([]window.Charge{c}) {
		if err := s.Repay(ctx, &end, c); err != nil {
			return nil, err
		}
	}
	if !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	r := s.decide(ctx, []window.Charge{c}, nil)
	holder.Answered(r.Decisions)
	return r.Decisions, r.Err
}

func (s *site) take(t *testing.T, c window.Charge) window.Decision {
	t.Helper()
	ds, err := s.ask(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // a lease that has ended is booked before the next request
	return ds[0]
}

// takeAhead asks for a unit at a time until `units` more are leased.
func (s *site) takeAhead(t *testing.T, c window.Charge, units int64) (asked int64) {
	t.Helper()
	for before := s.Left(); s.Left() < before+units; asked++ {
		s.take(t, c)
	}
	return asked
}

// counted returns the units that the server has of a counter.
func (s *site) counted(t *testing.T, c window.Charge) int64 {
	t.Helper()
	synctest.Wait() // what has ended is being booked
	c.Cost = 0
	ds, err := s.store.Peek(t.Context(), []window.Charge{c})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0].Limit - ds[0].Remaining
}

func charge(key string, limit int64, length time.Duration, units int64, ttl time.Duration) window.Charge {
	return window.Charge{
		Zone: "zone", Key: key, Cost: 1, Algorithm: window.Zset{},
		Policies: []window.Policy{{Limit: limit, Window: length}}, Lease: window.Lease{Units: units, TTL: ttl},
	}
}
