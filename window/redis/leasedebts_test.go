package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// refuse has a proxy refuse connections, until it is undone.
func (p *proxy) refuse(t *testing.T) (undo func()) {
	t.Helper()
	old := p.target.Load()
	closedAddress := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	p.target.Store(&closedAddress)
	p.hangUp()
	return func() { p.target.Store(old) }
}

// passed returns how many of n units pass, one by one.
func passed(t *testing.T, s *redis.Store, n int64, c window.Charge) (units int64) {
	t.Helper()
	for range n {
		if window.Allowed(take(t, s, c)) {
			units++
		}
	}
	return units
}

// TestLeaseDebt refuses connections when a lease ends, until the first booking has almost
// left the window: all that was used is booked then, and no more than the limit passes.
func TestLeaseDebt(t *testing.T) {
	const (
		limit  = 100
		length = 4 * time.Second
		ttl    = 2 * time.Second
	)
	for _, algo := range leasable {
		for _, secrets := range []int{0, 2} {
			t.Run(fmt.Sprintf("%T%+[1]v, %d secrets", algo, secrets), func(t *testing.T) {
				t.Parallel()
				p := startProxy(t)
				p.target.Store(&server.Addr)
				clock := windowtest.NewClock()
				var told reports
				o := redis.Options{Addresses: []string{p.addr}, Timeout: time.Second, Now: clock.Now, Prefix: freshPrefix("debt"), Report: told.add}
				if secrets == 2 {
					o.KeySecret, o.FormerKeySecret = strings.Repeat("a", 32), strings.Repeat("b", 32)
				}
				s := newStore(t, o)
				o.Addresses = []string{server.Addr}
				other := newStore(t, o)
				c := charge("zone", "key", limit, length)
				c.Algorithm = algo
				own := leased(c, 64, ttl)
				used := takeAhead(t, s, own, 20)
				redis.Leases(s).Wait()
				clock.Add(ttl.Milliseconds() - 1)
				for range 15 { // used last
					used += passed(t, s, 1, own)
				}
				redis.Leases(s).Wait()
				undo := p.refuse(t)
				clock.Add(1)
				redis.Leases(s).EndDue()
				if redis.Leases(s).Debts() != 1 {
					t.Fatalf("%d debts after a lease that could not be booked, want 1", redis.Leases(s).Debts())
				}
				clock.Add(600)
				undo()
				eventually(t, patience, "the debt is booked", func() bool { return redis.Leases(s).Debts() == 0 })
				if got := charged(t, other, c); got != used {
					t.Errorf("%d units are counted once it was booked, want %d", got, used)
				}
				// The first booking would have left the window, but not those who used it last.
				clock.Add(length.Milliseconds() - ttl.Milliseconds() - 600)
				if got := passed(t, other, limit, c); got > limit-15 {
					t.Errorf("%d of %d pass within the window of 15 others", got, limit)
				}
				if errs := told.list(); len(errs) > 0 {
					t.Errorf("reported: %v, want nothing", errs)
				}
			})
		}
	}
}

// TestLeaseDebtFirst asks for a counter on which there is a debt, before the background has
// booked it: the debt is booked first, whatever the request is like.
func TestLeaseDebtFirst(t *testing.T) {
	c := charge("zone", "key", 100, time.Minute)
	another := charge("another", "key", 100, time.Minute)
	for name, ask := range map[string]func(context.Context, *redis.Store) error{
		"with a lease": func(ctx context.Context, s *redis.Store) error {
			_, err := s.Take(ctx, []window.Charge{leased(c, 64, time.Second)})
			return err
		},
		"without": func(ctx context.Context, s *redis.Store) error {
			_, err := s.Take(ctx, []window.Charge{c})
			return err
		},
		"with another zone": func(ctx context.Context, s *redis.Store) error {
			_, err := s.Take(ctx, []window.Charge{another, leased(c, 64, time.Second)})
			return err
		},
		"in a batch": func(ctx context.Context, s *redis.Store) error {
			return s.TakeBatch(ctx, [][]window.Charge{{another}, {c}})[1].Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t)
			p.target.Store(&server.Addr)
			clock := windowtest.NewClock()
			o := redis.Options{Addresses: []string{p.addr}, Timeout: time.Second, Now: clock.Now, Prefix: freshPrefix("first")}
			s := newStore(t, o)
			own := leased(c, 64, time.Second)
			used := takeAhead(t, s, own, 20)
			redis.Leases(s).Wait()
			undo := p.refuse(t)
			clock.Add(1_000)
			redis.Leases(s).EndDue()
			if err := ask(t.Context(), s); err == nil {
				t.Error("a request is decided on while the debt cannot be booked")
			}
			undo()
			if err := ask(t.Context(), s); err != nil || redis.Leases(s).Debts() != 0 {
				t.Errorf("a request = %v, and there are %d debts; want none", err, redis.Leases(s).Debts())
			}
			o.Addresses = []string{server.Addr}
			if got := charged(t, newStore(t, o), c) - redis.Leases(s).Left(); got != used+1 {
				t.Errorf("%d units are counted, want %d", got, used+1)
			}
		})
	}
}

// TestLeaseOfFrozen takes leases, and stops the clock of none: as for a process that was stopped
// for longer than the window. No unit of the lease is handed out, those that were used do not
// count as fresh, and what the server decides on comes after them.
func TestLeaseOfFrozen(t *testing.T) {
	const (
		limit  = 100
		length = 4_000 // ms
	)
	for _, algo := range leasable {
		for _, frozen := range []int64{1_000, 3_000, 4_100, 5_500, 60_000} { // from when the lease was half used
			t.Run(fmt.Sprintf("%T%+[1]v for %d ms", algo, frozen), func(t *testing.T) {
				t.Parallel()
				clock := windowtest.NewClock()
				var told reports
				o := redis.Options{Timeout: time.Second, Now: clock.Now, Prefix: freshPrefix("frozen"), Report: told.add}
				s, other := newStore(t, o), newStore(t, o)
				c := charge("zone", "key", limit, length*time.Millisecond)
				c.Algorithm = algo
				own := leased(c, 64, 2*time.Second)
				var used []int64
				for range takeAhead(t, s, own, 20) {
					used = append(used, clock.Now())
				}
				redis.Leases(s).Wait()
				clock.Add(1_500)
				for range 15 {
					take(t, s, own)
					used = append(used, clock.Now())
				}
				redis.Leases(s).Wait() // those that were used up: a booking has the time at which it is sent
				at := clock.Now()
				clock.Add(frozen)
				for range 30 { // others spend what they can
					for range passed(t, other, 3, c) {
						used = append(used, clock.Now())
					}
				}
				before := clock.Now()
				d := take(t, s, own)[0]
				if d.At < at+frozen && frozen >= 500 {
					t.Errorf("decided at %d, with a lease that was over at %d", d.At, at+500)
				}
				if d.Allowed {
					used = append(used, before)
				}
				for range passed(t, s, limit, own) {
					used = append(used, clock.Now())
				}
				if frozen < length-1_500 { // no booking was missing
					windows(used, length, func(n int, from int64) {
						if n > limit {
							t.Errorf("%d pass from %d on, limit %d", n, from, limit)
						}
					})
				}
				// What the frozen process has used of the lease is all that others did not know of; it
				// takes no more itself than is left.
				fresh, most := 0, limit
				for _, at := range used {
					if at > clock.Now()-length {
						fresh++
					}
				}
				if frozen >= length-1_500 && frozen < length {
					most += 15
				}
				if fresh > most {
					t.Errorf("%d units in the last window, want %d at most", fresh, most)
				}
				if frozen > length+2_000 && fresh < limit {
					t.Errorf("%d pass in a window of which nothing was used, want %d", fresh, limit)
				}
				late := slices.ContainsFunc(told.list(), func(err error) bool { return strings.Contains(err.Error(), "were missing") })
				if want := frozen+1_500 >= length; late != want {
					t.Errorf("reported: %v, want a line: %v", told.list(), want)
				}
			})
		}
	}
}

// windows returns for each unit how many come in the window that begins with it. Times ascend.
func windows(times []int64, length int64, tell func(n int, from int64)) {
	for first := range times {
		n := 0
		for _, at := range times[first:] {
			if at < times[first]+length {
				n++
			}
		}
		tell(n, times[first])
	}
}
