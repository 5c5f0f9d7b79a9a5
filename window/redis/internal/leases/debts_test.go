package leases_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestDebts has debts of many counters: all are booked once, by the background or when the store closes, but
// those that are too old, were forgotten, or may have been booked.
func TestDebts(t *testing.T) {
	const counters = 300
	key := func(i int) window.Charge { return charge(strconv.Itoa(i), 100, time.Minute, 64, time.Second) }
	for name, test := range map[string]struct {
		end  func(t *testing.T, s *site)
		want int64  // units of each counter
		told string // in a report for each counter; "": no reports
	}{
		"in the background": {func(_ *testing.T, s *site) { s.become(nil) }, 3, ""},
		"in the end": {func(_ *testing.T, s *site) {
			s.become(nil)
			s.Close()
		}, 3, ""},
		"after a reload": {func(_ *testing.T, s *site) {
			s.Drain()
			s.become(nil)
		}, 3, ""},
		"never": {func(_ *testing.T, s *site) { s.Close() }, 5, "was not booked at its end"},
		"late": {func(_ *testing.T, s *site) {
			time.Sleep(59_100 * time.Millisecond) // the first booking has left
			s.become(nil)
		}, 2, "were missing"},
		"too late": {func(_ *testing.T, s *site) {
			time.Sleep(61 * time.Second)
			s.become(nil)
		}, 0, "were missing"},
		"forgotten": {func(t *testing.T, s *site) {
			for i := range counters {
				c := key(i)
				s.Forget(&c)
			}
			if s.Debts() != 0 {
				t.Errorf("%d debts after all counters were reset", s.Debts())
			}
			s.become(nil)
		}, 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				for i := range counters {
					c := key(i)
					s.take(t, c)
					c.Cost = 2
					s.take(t, c) // of four
					if !s.GiveBack(&c, s.now(), 1) {
						t.Fatal("there is no lease")
					}
				}
				time.Sleep(500 * time.Millisecond)
				for i := range counters {
					s.take(t, key(i))
				}
				s.become(errAway)
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				if s.Debts() != counters {
					t.Fatalf("%d debts, want %d", s.Debts(), counters)
				}
				before := s.bookings
				test.end(t, s)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if s.Debts() != 0 || s.bookings-before > 30 {
					t.Errorf("%d debts are left, after %d calls", s.Debts(), s.bookings-before)
				}
				want := 0
				if test.told != "" {
					want = counters
				}
				if len(s.reports) != want {
					t.Errorf("%d reports, want %d", len(s.reports), want)
				}
				for _, err := range s.reports {
					if !strings.Contains(err.Error(), test.told) {
						t.Fatalf("reported: %v", err)
					}
				}
				for i := range counters {
					if got := s.counted(t, key(i)); got != test.want {
						t.Fatalf("%d units of counter %d are counted, want %d", got, i, test.want)
					}
				}
			})
		})
	}
}

// owing makes the lease of a counter a debt, and returns the units that were used.
func (s *site) owing(t *testing.T, c window.Charge) (used int64) {
	t.Helper()
	used = s.takeAhead(t, c, 20)
	synctest.Wait()
	s.become(errAway)
	time.Sleep(c.Lease.TTL)
	synctest.Wait()
	if s.Debts() != 1 {
		t.Fatalf("%d debts after a lease that could not be booked, want 1", s.Debts())
	}
	return used
}

// TestDebtFirst books a debt before a request on its counter is decided on, once for all who ask.
func TestDebtFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, time.Minute, 64, time.Second)
		used := s.owing(t, c)
		if ds, err := s.ask(t.Context(), c); err == nil {
			t.Errorf("decided %+v while the debt cannot be booked", ds)
		}
		before := s.bookings
		s.become(nil)
		s.slow = timeout / 10
		plain := c
		plain.Lease = window.Lease{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := s.ask(t.Context(), plain); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		s.slow = 0
		if got := s.counted(t, c); got != used+8 || s.bookings != before+1 {
			t.Errorf("%d units are counted after %d calls, want %d after 1", got, s.bookings-before, used+8)
		}
	})
}

// TestDebtOutlivesRequest goes on with a booking when the request goes that began it, and lets others
// wait for no longer than they can.
func TestDebtOutlivesRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, time.Minute, 64, time.Second)
		used := s.owing(t, c)
		s.become(nil)
		s.slow = timeout / 2
		ctx, cancel := context.WithTimeout(t.Context(), timeout/4)
		defer cancel()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := s.ask(ctx, c); err == nil {
					t.Error("a request is decided on after its end")
				}
			})
		}
		all.Wait()
		s.slow = 0
		if got := s.counted(t, c); got != used || s.Debts() != 0 {
			t.Errorf("%d units are counted, with %d debts; want %d and none", got, s.Debts(), used)
		}
	})
}

// TestDebtMayBeBooked books nothing twice: units of which it is unknown whether they are booked stay, and are
// reported.
func TestDebtMayBeBooked(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, time.Minute, 64, time.Second)
		s.owing(t, c)
		counted := s.counted(t, c)
		s.become(window.ErrUnknown)
		end := time.Time{}
		if err := s.Repay(t.Context(), &end, c); err == nil {
			t.Error("a debt that is not listed is repaid")
		}
		s.become(nil)
		time.Sleep(2 * time.Second)
		if got := s.counted(t, c); got != counted || s.Debts() != 0 || len(s.reports) != 1 {
			t.Errorf("%d units are counted, with %d debts and %d reports; want %d, none and 1", got, s.Debts(), len(s.reports), counted)
		}
	})
}

// TestForgottenWhileBooked forgets a counter while its debt is being booked: what fails is no debt any more.
func TestForgottenWhileBooked(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("key", 100, time.Minute, 64, time.Second)
		s.owing(t, c)
		s.slow = timeout / 2
		var repaying sync.WaitGroup
		repaying.Go(func() {
			if err := s.Repay(t.Context(), new(time.Time), c); err == nil {
				t.Error("repaid")
			}
		})
		synctest.Wait()
		s.Forget(&c)
		repaying.Wait()
		s.slow = 0
		if s.Debts() != 0 || len(s.reports) != 0 {
			t.Errorf("%d debts, reported: %v; want neither", s.Debts(), s.reports)
		}
	})
}
