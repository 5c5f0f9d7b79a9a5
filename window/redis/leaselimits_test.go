package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

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

// TestLeaseOfTwoLimits holds that a lease is over after half of the shorter window, in either
// order of the limits.
func TestLeaseOfTwoLimits(t *testing.T) {
	long, short := window.Policy{Limit: 1_000, Window: time.Hour}, window.Policy{Limit: 1_000, Window: time.Minute}
	for i, policies := range [][]window.Policy{{long, short}, {short, long}} {
		clock := windowtest.NewClock()
		s := newStore(t, redis.Options{Now: clock.Now})
		c := leased(charge("zone", fmt.Sprint(i), 1, time.Hour), 64, time.Hour)
		c.Policies = policies
		takeAhead(t, s, c, 10)
		clock.Add(30_000)
		if got := take(t, s, c)[0].At; got != clock.Now() {
			t.Errorf("%v: decided at %d, want %d: the lease is over", policies, got, clock.Now())
		}
	}
}

// TestLeaseForBusyKeysOnly has a key that is asked for once in a lease's life, and
// requests that only look.
func TestLeaseForBusyKeysOnly(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	c := leased(charge("zone", "seldom", 1_000, time.Hour), 64, time.Second)
	for range 10 {
		take(t, s, c)
		clock.Add(1_001)
	}
	if got := redis.Leases(s).Left(); got != 0 {
		t.Errorf("%d are leased of a key that is seldom asked for", got)
	}
	c.Key = "busy"
	takeAhead(t, s, c, 10)
	clock.Add(1)
	c.Cost = 0
	if d := take(t, s, c)[0]; d.At != clock.Now() {
		t.Errorf("a look was answered at %d, want %d, by the server", d.At, clock.Now())
	}
}

// TestLeaseFollowsRate has a counter that is asked for less: the next lease is as large
// as what was used of the last one in time.
func TestLeaseFollowsRate(t *testing.T) {
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Now: clock.Now})
	c := leased(charge("zone", "key", 1_000_000, time.Hour), 64, time.Second)
	takeAhead(t, s, c, 63)
	for range 10 {
		take(t, s, c)
	}
	clock.Add(600)
	take(t, s, c)
	clock.Add(600)
	take(t, s, c)
	if got := redis.Leases(s).Left(); got != 11 {
		t.Errorf("%d left of a lease after one of which 12 were used in time, want 11", got)
	}
}

// TestLeaseLeavesHalf uses up a limit: no lease takes more than half of what is left.
func TestLeaseLeavesHalf(t *testing.T) {
	const limit = 100
	s := newStore(t, redis.Options{Now: windowtest.NewClock().Now})
	c := leased(charge("zone", "key", limit, time.Hour), 64, time.Second)
	leases := 0
	for asked := range int64(limit) {
		before := redis.Leases(s).Left()
		if d := take(t, s, c)[0]; !d.Allowed {
			t.Fatalf("request %d: %+v", asked, d)
		}
		if got := redis.Leases(s).Left(); got > before {
			leases++
			if got+1 > (limit-asked)/2 {
				t.Errorf("a lease of %d when %d were left", got+1, limit-asked)
			}
		}
	}
	if leases < 5 {
		t.Errorf("%d leases, want some", leases)
	}
}

// TestLeaseGivenBackTwice gives back more than a lease has handed out.
func TestLeaseGivenBackTwice(t *testing.T) {
	s := newStore(t, redis.Options{Now: windowtest.NewClock().Now})
	c := leased(charge("zone", "key", 100, time.Hour), 8, time.Minute)
	takeAhead(t, s, c, 5)
	if err := s.GiveBack(t.Context(), c, take(t, s, c)[0].At, 1_000); err != nil {
		t.Fatal(err)
	}
	if got := redis.Leases(s).Left(); got > 8 {
		t.Errorf("%d are left of a lease of 8 at most", got)
	}
}

// TestLeaseReset resets one of two counters.
func TestLeaseReset(t *testing.T) {
	s := newStore(t, redis.Options{Now: windowtest.NewClock().Now})
	one := leased(charge("zone", "one", 100, time.Hour), 8, time.Minute)
	other := one
	other.Key = "other"
	takeAhead(t, s, one, 4)
	left := redis.Leases(s).Left()
	takeAhead(t, s, other, 4)
	if err := s.Reset(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := redis.Leases(s).Left(); got != left {
		t.Errorf("%d are leased after the other counter was reset, want %d", got, left)
	}
}

// TestLeaseResetMeanwhile resets a counter while a lease of it is taken: nobody knows
// whether that is booked, so that it ends at once.
func TestLeaseResetMeanwhile(t *testing.T) {
	own, p := redistest.Start(t), startProxy(t)
	p.target.Store(&own.Addr)
	clock := windowtest.NewClock()
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Prefix: "reset", Now: clock.Now})
	c := leased(charge("zone", "key", 100, time.Hour), 64, time.Minute)
	takeAhead(t, s, c, 1)
	if err := s.ChargeMore(t.Context(), c, 1); err != nil { // ends the lease
		t.Fatal(err)
	}
	redis.Leases(s).Wait()
	reset := func() {
		if err := s.Reset(t.Context(), c); err != nil {
			t.Error(err)
		}
		clock.Add(1) // in the millisecond of the lease, what is booked would be given back at once
	}
	p.onReply.Store(&reset)
	take(t, s, c)
	if got := redis.Leases(s).Left(); got != 0 {
		t.Errorf("%d are leased of a counter that was reset", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := charged(t, newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "reset", Now: clock.Now}), leased(c, 0, 0)); got != 1 {
		t.Errorf("%d are booked in the end, want 1", got)
	}
}

// TestLeaseKeptWhileCrowded has more counters come than there is memory for: what has
// a lease stays.
func TestLeaseKeptWhileCrowded(t *testing.T) {
	o := redis.Options{Prefix: "crowded"}
	s := newStore(t, o)
	c := leased(charge("zone", "key", 1_000, time.Hour), 64, time.Minute)
	asked := takeAhead(t, s, c, 10)
	left := redis.Leases(s).Left()
	for i := range 100_000 {
		one := charge("zone", fmt.Sprint(i), 1, time.Hour)
		redis.Leases(s).Holder(&one)
	}
	if got := redis.Leases(s).Left(); got != left {
		t.Errorf("%d are leased, want %d", got, left)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := charged(t, newStore(t, o), leased(c, 0, 0)); got != asked {
		t.Errorf("%d are booked in the end, want %d", got, asked)
	}
}

// TestLeaseDeadline has a server that is slow to deny a lease, and to answer the
// request then: both together have the timeout, for all who wait.
func TestLeaseDeadline(t *testing.T) {
	own, p := redistest.Start(t), startProxy(t)
	p.target.Store(&own.Addr)
	s := newStore(t, redis.Options{Addresses: []string{p.addr}, Timeout: time.Second, Prefix: "slow"})
	c := leased(charge("zone", "key", 40, time.Hour), 100, time.Minute)
	take(t, s, c)
	others := c
	others.Lease, others.Cost = window.Lease{}, 38
	take(t, newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "slow"}), others)
	var slow func()
	slow = func() {
		p.onReply.Store(&slow)
		time.Sleep(600 * time.Millisecond)
	}
	p.onReply.Store(&slow)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if ds, err := s.Take(context.Background(), []window.Charge{c}); !errors.Is(err, window.ErrUnavailable) {
				t.Errorf("Take = %+v, %v after two answers of 0.6 s each, want ErrUnavailable after 1 s", ds, err)
			}
		})
	}
	all.Wait()
	p.onReply.Store(nil)
}
