package leases_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/leases"
)

// TestEnds hands out units until the millisecond in which a lease is over.
func TestEnds(t *testing.T) {
	for _, test := range []struct{ ttl, length, life time.Duration }{
		{time.Minute, time.Hour, time.Minute},
		{time.Hour, time.Hour, 30 * time.Minute},
		{time.Minute, timeout + 50*time.Millisecond, 50 * time.Millisecond}, // the end needs time to get there
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				c := charge("key", 1_000, test.length, 64, test.ttl)
				s.takeAhead(t, c, 10)
				at := s.take(t, c).At
				time.Sleep(test.life - time.Millisecond)
				if got := s.take(t, c).At; got != at {
					t.Errorf("a request in the last ms was decided at %d, want the lease of %d", got, at)
				}
				time.Sleep(time.Millisecond)
				if got := s.take(t, c).At; got != s.now() {
					t.Errorf("a request after the end was decided at %d, want %d", got, s.now())
				}
			})
		})
	}
}

// TestEndsByItself books a lease whose time is over, though no request asks for the counter.
func TestEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 1_000, time.Hour, 64, time.Minute)
		asked := s.takeAhead(t, c, 10)
		if got := s.counted(t, c); got != asked+s.Left() {
			t.Errorf("%d units are counted while the lease lasts, want %d and %d", got, asked, s.Left())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.counted(t, c); got != asked || s.Left() != 0 {
			t.Errorf("%d units are counted, and %d are leased; want %d and none", got, s.Left(), asked)
		}
	})
}

// TestSettles gives back units of a lease, which are handed out again, and no more than it has handed out.
func TestSettles(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, time.Hour, 8, time.Minute)
		var last window.Decision
		for range 8 {
			last = s.take(t, c)
		}
		left := s.Left()
		if left == 0 || last.Remaining != 92 {
			t.Fatalf("%d left in a lease, %+v", left, last)
		}
		if !s.GiveBack(&c, last.At, 1) || s.Left() != left+1 {
			t.Errorf("%d left after one was given back, want %d", s.Left(), left+1)
		}
		if d := s.take(t, c); d.Remaining != 92 {
			t.Errorf("%d remaining after it was spent again, want 92", d.Remaining)
		}
		if s.GiveBack(&c, last.At-1, 1) {
			t.Error("a unit of another time was given back to the lease")
		}
		if !s.GiveBack(&c, last.At, 1_000) || s.Left() > 8 {
			t.Errorf("%d are left of a lease of 8 at most", s.Left())
		}
	})
}

// TestWhileAway makes the server go: what was leased is handed out, and then nothing is.
func TestWhileAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 1_000, time.Hour, 64, time.Minute)
		s.takeAhead(t, c, 10)
		s.become(errAway)
		for range s.Left() {
			if d := s.take(t, c); !d.Allowed {
				t.Fatalf("denied, with %d left in the lease", s.Left())
			}
		}
		if ds, err := s.ask(t.Context(), c); !errors.Is(err, window.ErrUnavailable) {
			t.Errorf("decided %+v, %v after the lease was used up, want ErrUnavailable", ds, err)
		}
	})
}

// TestCrowded makes more counters come than there is memory for: what has a lease stays.
func TestCrowded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		const busy = 100
		key := func(i int) window.Charge { return charge("busy"+fmt.Sprint(i), 1_000, time.Hour, 64, time.Minute) }
		var asked int64
		for i := range busy {
			asked = s.takeAhead(t, key(i), 10)
		}
		left, most := s.Left(), 0
		for i := range 100_000 {
			one := charge(fmt.Sprint(i), 1, time.Hour, 64, time.Minute)
			s.Holder(&one)
			if i%20_000 == 19_999 {
				most = max(most, s.Holders())
			}
		}
		if most != leases.HoldersPerShard*64 {
			t.Errorf("%d counters are known at most, want %d", most, leases.HoldersPerShard*64)
		}
		if s.Left() != left {
			t.Errorf("%d are leased, want %d", s.Left(), left)
		}
		s.Drain()
		for i := range busy {
			if got := s.counted(t, key(i)); got != asked {
				t.Fatalf("%d are booked in the end of counter %d, want %d", got, i, asked)
			}
		}
	})
}

// TestTwoLimits holds that a lease is over after half of the shorter window, in either order of
// the limits.
func TestTwoLimits(t *testing.T) {
	long, short := window.Policy{Limit: 1_000, Window: time.Hour}, window.Policy{Limit: 1_000, Window: time.Minute}
	for _, policies := range [][]window.Policy{{long, short}, {short, long}} {
		inBubble(t, func(t *testing.T, s *site) {
			c := charge("key", 1, time.Hour, 64, time.Hour)
			c.Policies = policies
			s.takeAhead(t, c, 10)
			time.Sleep(30 * time.Second)
			if got := s.take(t, c).At; got != s.now() {
				t.Errorf("%v: decided at %d, want %d: the lease is over", policies, got, s.now())
			}
		})
	}
}

// TestBusyKeysOnly has a key that is asked for once in a lease's life, and requests that only look.
func TestBusyKeysOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("seldom", 1_000, time.Hour, 64, time.Second)
		for range 10 {
			s.take(t, c)
			time.Sleep(1_001 * time.Millisecond)
		}
		if s.Left() != 0 {
			t.Errorf("%d are leased of a key that is seldom asked for", s.Left())
		}
		c.Key = "busy"
		s.takeAhead(t, c, 10)
		time.Sleep(time.Millisecond)
		c.Cost = 0
		if d := s.take(t, c); d.At != s.now() {
			t.Errorf("a look was answered at %d, want %d, by the server", d.At, s.now())
		}
	})
}

// TestFollowsRate has a counter that is asked for less: the next lease is as large as what was used
// of the last one in time.
func TestFollowsRate(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 1_000_000, time.Hour, 64, time.Second)
		s.takeAhead(t, c, 63)
		for range 10 {
			s.take(t, c)
		}
		time.Sleep(600 * time.Millisecond)
		s.take(t, c)
		time.Sleep(600 * time.Millisecond)
		s.take(t, c)
		if s.Left() != 11 {
			t.Errorf("%d left of a lease after one of which 12 were used in time, want 11", s.Left())
		}
	})
}

// TestLeavesHalf uses up a limit: no lease takes more than half of what is left.
func TestLeavesHalf(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		const limit = 100
		c := charge("key", limit, time.Hour, 64, time.Second)
		leased := 0
		for asked := range int64(limit) {
			before := s.Left()
			if d := s.take(t, c); !d.Allowed {
				t.Fatalf("request %d: %+v", asked, d)
			}
			if got := s.Left(); got > before {
				leased++
				if got+1 > (limit-asked)/2 {
					t.Errorf("a lease of %d when %d were left", got+1, limit-asked)
				}
			}
		}
		if leased < 5 {
			t.Errorf("%d leases, want some", leased)
		}
	})
}

// TestForget forgets one of two counters.
func TestForget(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		one, other := charge("one", 100, time.Hour, 8, time.Minute), charge("other", 100, time.Hour, 8, time.Minute)
		s.takeAhead(t, one, 4)
		left := s.Left()
		s.takeAhead(t, other, 4)
		s.Forget(&other)
		if s.Left() != left {
			t.Errorf("%d are leased after the other counter was forgotten, want %d", s.Left(), left)
		}
	})
}

// TestForgetMeanwhile resets a counter while a lease of it is taken: it is unknown whether that is
// booked, so that it ends at once.
func TestForgetMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, time.Hour, 64, time.Minute)
		s.takeAhead(t, c, 1)
		s.EndOf(&c)
		synctest.Wait()
		s.answered = func() {
			s.Forget(&c)
			if err := s.store.Reset(t.Context(), c); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond) // in the millisecond of the lease, what is booked would be given back at once
		}
		s.take(t, c)
		if s.Left() != 0 {
			t.Errorf("%d are leased of a counter that was reset", s.Left())
		}
		synctest.Wait()
		if got := s.counted(t, c); got != 1 {
			t.Errorf("%d are booked in the end, want 1", got)
		}
	})
}

// TestDeadline has a server that is slow to deny a lease, and to answer the request then: both
// together have the timeout, for all who wait.
func TestDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 40, time.Hour, 100, time.Minute)
		s.take(t, c)
		if err := s.store.ChargeMore(t.Context(), c, 38); err != nil {
			t.Fatal(err)
		}
		s.slow = timeout * 6 / 10
		start := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if ds, err := s.ask(t.Context(), c); !errors.Is(err, window.ErrUnavailable) || time.Since(start) != timeout {
					t.Errorf("decided %+v, %v after two slow answers, want ErrUnavailable after %s", ds, err, timeout)
				}
			})
		}
		all.Wait()
		s.slow = 0
	})
}

// TestArrivesLate delays a lease until it is over: no request gets any of it.
func TestArrivesLate(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, 30*time.Second, 64, time.Second)
		s.take(t, c)
		s.answered = func() { s.ahead.Add(int64(29_950 * time.Millisecond)) }
		if d := s.take(t, c); d.At != s.now() || s.Left() != 0 {
			t.Errorf("decided at %d, with %d units leased; want at %d, without a lease", d.At, s.Left(), s.now())
		}
		if got, want := s.calls, []string{"take", "take", "book", "take"}; !slices.Equal(got, want) {
			t.Errorf("the server was asked to %v, want %v: the lease ends before the decision", got, want)
		}
		if got := s.counted(t, c); got != 2 || s.Debts() != 0 {
			t.Errorf("%d units are counted, with %d debts; want 2 and none", got, s.Debts())
		}
	})
}

// TestSuspended suspends the machine: the steady clock of the process does not tell.
func TestSuspended(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		suspend := func(d time.Duration) { s.wall.Add(int64(d)) }
		c := charge("key", 1_000, time.Minute, 64, 20*time.Second)
		s.takeAhead(t, c, 10)
		at := s.take(t, c).At
		suspend(10 * time.Second)
		time.Sleep(time.Millisecond)
		if got := s.take(t, c).At; got != at {
			t.Errorf("after 10 s: decided at %d, want the lease of %d", got, at)
		}
		suspend(10 * time.Second)
		if got := s.take(t, c).At; got != s.now() {
			t.Errorf("after 20 s: decided at %d, want %d: the lease is over", got, s.now())
		}
		synctest.Wait()
		s.takeAhead(t, c, 10)
		used := s.counted(t, c) - s.Left()
		// By the clock on the wall all is over; by that of the server, which decides, nothing is.
		suspend(time.Hour)
		look := c
		look.Lease = window.Lease{}
		s.take(t, look)
		s.take(t, c)
		synctest.Wait()
		time.Sleep(time.Second)
		if got := s.counted(t, c) - s.Left(); got != used+2 || s.Debts() != 0 {
			t.Errorf("%d units are counted, with %d debts; want %d and none", got, s.Debts(), used+2)
		}
	})
}

// TestSuspendedForLong suspends the machine while the server goes on: what has left the window there is not booked
// again.
func TestSuspendedForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 1_000, time.Minute, 64, 20*time.Second)
		s.takeAhead(t, c, 10)
		synctest.Wait()
		s.wall.Add(int64(time.Hour))
		s.there.Add(int64(time.Hour))
		if d := s.take(t, c); !d.Allowed || d.Remaining != 999 {
			t.Errorf("after an hour: %+v, want 999 remaining", d)
		}
		if s.Debts() != 0 || len(s.reports) != 1 {
			t.Errorf("%d debts, reported: %v; want none and 1", s.Debts(), s.reports)
		}
	})
}
