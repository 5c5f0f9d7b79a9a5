package redis_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// leasable are the algorithms that can be leased.
var leasable = []window.Algorithm{
	window.Zset{},
	window.Log{},
	window.Slices{Count: 20},
	window.Slices{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond},
	window.Layers{Coarse: 200 * time.Millisecond, Fine: 50 * time.Millisecond},
}

func leased(c window.Charge, units int64, ttl time.Duration) window.Charge {
	c.Lease = window.Lease{Units: units, TTL: ttl}
	return c
}

// takeAhead asks for a unit at a time until `units` more are leased, and returns the number of
// units that it asked for.
func takeAhead(t *testing.T, s *redis.Store, c window.Charge, units int64) (asked int64) {
	t.Helper()
	for before := redis.Leases(s).Left(); redis.Leases(s).Left() < before+units; asked++ {
		take(t, s, c)
	}
	return asked
}

// TestLeaseAsksSeldom counts what the server is asked for a busy counter.
func TestLeaseAsksSeldom(t *testing.T) {
	own := redistest.Start(t)
	server := own.Client(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "seldom"})
	warm(t, s, "key")
	server.ConfigResetStat(t.Context())
	const n = 20_000
	c := leased(charge("zone", "key", 1_000_000, time.Hour), 1_000, time.Minute)
	for i := range int64(n) {
		if d := take(t, s, c)[0]; !d.Allowed || d.Remaining != 1_000_000-1-i || d.RetryAfter != 0 || d.ResetAfter < time.Hour || d.ResetAfter > time.Hour+time.Minute {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
	// 1 + 2 + 4 + ... + 512, and a thousand at a time from then on; each is booked.
	if calls := commandCalls(t, server, "evalsha"); calls > 2*(11+n/1_000) {
		t.Errorf("the server was asked %d times for %d requests", calls, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := charged(t, newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "seldom"}), c); got != n {
		t.Errorf("%d booked in the end, want %d", got, n)
	}
}

// TestLeaseIsStrict has three stores share a limit, two of them with leases, on a
// clock that is told to go on: no window holds more than the limit, and in the end
// what is booked is what was used.
func TestLeaseIsStrict(t *testing.T) {
	const (
		limit  = 60
		length = 2_000 // ms
		steps  = 6_000
	)
	for _, algo := range leasable {
		t.Run(fmt.Sprintf("%T%+[1]v", algo), func(t *testing.T) {
			t.Parallel()
			clock := windowtest.NewClock()
			o := redis.Options{Now: clock.Now, Prefix: fmt.Sprintf("strict lease %+v", algo), Timeout: time.Second}
			stores := []*redis.Store{newStore(t, o), newStore(t, o), newStore(t, o)}
			c := charge("zone", "key", limit, length*time.Millisecond)
			c.Algorithm = algo
			random := rand.New(rand.NewPCG(1, 2))
			var used []int64 // times of units, ascending
			handed := 0
			for range steps {
				if random.IntN(3) == 0 {
					clock.Add(random.Int64N(40))
					if random.IntN(100) == 0 {
						clock.Add(length / 5)
					}
					for _, s := range stores {
						redis.Leases(s).EndDue()
					}
				}
				i := random.IntN(3)
				one := c
				one.Cost = 1 + random.Int64N(2)
				if i > 0 {
					one = leased(one, 16, 500*time.Millisecond)
				}
				had := redis.Leases(stores[i]).Left()
				if ds := take(t, stores[i], one); ds[0].Allowed {
					for range one.Cost {
						used = append(used, clock.Now())
					}
					if had-one.Cost == redis.Leases(stores[i]).Left() {
						handed++
					}
				}
			}
			for first, last := 0, 0; last < len(used); last++ {
				for used[last]-used[first] >= length {
					first++
				}
				if n := last - first + 1; n > limit {
					t.Fatalf("%d units within %d ms, limit %d", n, used[last]-used[first]+1, limit)
				}
			}
			t.Logf("%d units of %d, %d requests out of leases", len(used), limit*(clock.Now()-windowtest.Start)/length, handed)
			if handed < steps/50 {
				t.Errorf("%d requests out of leases", handed)
			}
			// Rest, so that one more lease is all that there is.
			clock.Add(10 * length)
			for _, s := range stores {
				redis.Leases(s).EndDue()
			}
			clock.Add(10 * length)
			one := leased(c, 16, 500*time.Millisecond)
			for range 20 {
				take(t, stores[1], one)
			}
			_ = stores[1].Close()
			if got := charged(t, stores[0], c); got != 20 {
				t.Errorf("%d booked after 20 were used and the store was closed", got)
			}
		})
	}
}

// TestLeaseConcurrent has many callers at once on stores with leases, in real time.
func TestLeaseConcurrent(t *testing.T) {
	const (
		limit  = 500
		length = time.Second
	)
	type admission struct{ asked, answered time.Time }
	var mu sync.Mutex
	var all []admission
	o := redis.Options{Prefix: "concurrent lease"}
	stores := []*redis.Store{newStore(t, o), newStore(t, o)}
	c := leased(charge("zone", "key", limit, length), 50, 100*time.Millisecond)
	end := time.Now().Add(3 * time.Second)
	parallel(16, func(i int) {
		for time.Now().Before(end) {
			asked := time.Now()
			ds, err := stores[i%2].Take(t.Context(), []window.Charge{c})
			if err != nil {
				t.Error(err)
				return
			}
			if ds[0].Allowed {
				mu.Lock()
				all = append(all, admission{asked, time.Now()})
				mu.Unlock()
			}
			time.Sleep(time.Duration(rand.IntN(2_000)) * time.Microsecond)
		}
	})
	// What was asked and answered within a window was admitted within it.
	most := 0
	for _, from := range all {
		n := 0
		for _, a := range all {
			if !a.asked.Before(from.asked) && a.answered.Before(from.asked.Add(length-time.Millisecond)) {
				n++
			}
		}
		most = max(most, n)
	}
	t.Logf("%d admitted, at most %d in a window", len(all), most)
	if most > limit || len(all) < limit {
		t.Errorf("%d admitted, %d in one window: want %d at most in one, and at least that number in all", len(all), most, limit)
	}
}

func TestLeaseRefused(t *testing.T) {
	s := newStore(t, redis.Options{})
	for _, c := range []window.Charge{
		leased(charge("zone", "key", 10, time.Hour), 1, time.Second),
		leased(charge("zone", "key", 10, time.Hour), -1, time.Second),
		leased(charge("zone", "key", 10, time.Hour), window.MaxProduct+1, time.Second),
		leased(charge("zone", "key", 10, time.Hour), 10, 0),
		leased(charge("zone", "key", 10, time.Hour), 10, time.Millisecond/2),
		leased(charge("zone", "key", 10, time.Hour), 0, time.Second),
		leased(of(window.Stream{}, charge("zone", "key", 10, time.Hour)), 10, time.Second),
		leased(of(window.GCRA{}, charge("zone", "key", 10, time.Hour)), 10, time.Second),
		leased(of(window.Slices{Weighted: true}, charge("zone", "key", 10, time.Hour)), 10, time.Second),
	} {
		if _, err := s.Take(t.Context(), []window.Charge{c}); !errors.Is(err, window.ErrInvalid) {
			t.Errorf("lease %+v of %T: %v, want ErrInvalid", c.Lease, c.Algorithm, err)
		}
	}
}

func of(algo window.Algorithm, c window.Charge) window.Charge {
	c.Algorithm = algo
	return c
}

// TestLeaseCosts has costs that no lease covers, up to the largest: they are decided as
// without a lease, and the server goes on.
func TestLeaseCosts(t *testing.T) {
	for _, algo := range leasable {
		s := newStore(t, redis.Options{Now: windowtest.NewClock().Now})
		c := leased(of(algo, charge("zone", "key", 10, 10*time.Second)), 10, time.Second)
		for _, cost := range []int64{math.MaxInt64, math.MaxInt64/2 + 1, math.MaxInt64 / 2, 1 << 53, 11} {
			c.Cost = cost
			if d := take(t, s, c)[0]; d.Allowed || d.Remaining != 10 || d.RetryAfter != window.Never || redis.Leases(s).Left() > 0 {
				t.Errorf("%T: cost %d: %+v, and a lease of %d; want a denial", algo, cost, d, redis.Leases(s).Left())
			}
		}
		c.Cost = 1
		if d := take(t, s, c)[0]; !d.Allowed || d.Remaining != 9 {
			t.Errorf("%T: then a unit: %+v, want 9 left", algo, d)
		}
	}
}

// TestLeaseKnowsOfSettlements makes a lease get back what is given back, and end when more is charged or the
// counter is reset.
func TestLeaseKnowsOfSettlements(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	c := leased(charge("zone", "key", 100, time.Hour), 8, time.Minute)
	takeAhead(t, s, c, 5)
	at, left := take(t, s, c)[0].At, redis.Leases(s).Left()
	if err := s.GiveBack(t.Context(), c, at, 1); err != nil || redis.Leases(s).Left() != left+1 {
		t.Errorf("GiveBack = %v, and %d are left, want %d", err, redis.Leases(s).Left(), left+1)
	}
	if err := s.ChargeMore(t.Context(), c, 1); err != nil || redis.Leases(s).Left() != 0 {
		t.Errorf("ChargeMore = %v, and %d are left, want none", err, redis.Leases(s).Left())
	}
	redis.Leases(s).Wait()
	takeAhead(t, s, c, 1)
	if err := s.Reset(t.Context(), c); err != nil || redis.Leases(s).Left() != 0 {
		t.Errorf("Reset = %v, and %d are left, want none", err, redis.Leases(s).Left())
	}
	if d := take(t, s, c)[0]; d.Remaining != 99 {
		t.Errorf("%d remaining after a reset, want 99", d.Remaining)
	}
}
