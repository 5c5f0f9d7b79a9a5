package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// inBubble runs a test of one site with a remote.
func inBubble(t *testing.T, run func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{}
		*s = *newSite(t, newRemote())
		run(t, s)
	})
}

// eachAlgorithm runs a test with a charge of 1 on a limit of 10 in 10 s.
func eachAlgorithm(t *testing.T, run func(t *testing.T, s *site, c window.Charge)) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				c := charge("zone", "key", 10, 10*time.Second)
				c.Algorithm = v.algorithm
				run(t, s, c)
			})
		})
	}
}

// What is used up stays so when the store goes, and is free a window later.
func TestUsedUpStaysDenied(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		s.want(t, "with the store", 10, c)
		s.remote.become(down)
		s.want(t, "without it", 0, c)
		fresh := c
		fresh.Key = "fresh"
		s.want(t, "without it, on a fresh key", 10, fresh)
		s.want(t, "and again", 0, fresh)
		time.Sleep(11 * time.Second) // with the slice that is leaving
		if got := s.passed(t, 1, c); got != 1 {
			t.Error("a request is denied a window later")
		}
	})
}

// A guard that comes while another of the same counts knows that the store is away, as
// with a reload, does not try it with a request, nor with what is owed: what became
// of that would be unknown.
func TestGuardWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, r := fallback.NewCounts(), newRemote()
		guard := func(changes *int) *site {
			s := &site{Guard: fallback.New(r, fallback.Options{Counts: counts, OnChange: func(string, bool, error) { *changes++ }}), remote: r}
			s.EnableLocal()
			return s
		}
		var changes [3]int
		c := charge("zone", "key", 10, time.Hour)
		old := guard(&changes[0])
		old.away(t)
		if got := old.passed(t, 7, c); got != 7 {
			t.Errorf("%d of 7 pass", got)
		}
		synctest.Wait()
		r.become(dropped)
		before := r.attempts()
		guard(&changes[1]).close(t) // a reload that is reloaded
		young := guard(&changes[1])
		if err := old.Close(); err != nil {
			t.Error(err)
		}
		if got := young.passed(t, 10, c); got != 3 {
			t.Errorf("%d more pass, want 3", got)
		}
		if r.attempts() > before {
			t.Errorf("what is owed was booked, %d times, in a store that is away", r.attempts()-before)
		}
		young.back()
		if got := young.passed(t, 1, c); got != 0 || r.booked("zone") != 10 {
			t.Errorf("once it is back, %d more pass, and %d units are booked, want 0 and 10", got, r.booked("zone"))
		}
		youngest := guard(&changes[2]) // comes when all is well
		if _, err := youngest.Take(t.Context(), []window.Charge{c}); err != nil {
			t.Error(err)
		}
		if changes != [3]int{1, 3, 0} {
			t.Errorf("%v changes, want 1, 3 and 0", changes)
		}
		for _, s := range []*site{young, youngest} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(counts.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A denial under a small limit says little of a key that has a larger one at other times:
// what passed here is not forgotten for it.
func TestLimitIsSmallerMeanwhile(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		if c.Algorithm.Name() == "gcra" {
			return // what it holds is cut to the small limit, in the store too
		}
		high, low := c, c
		high.Policies = []window.Policy{{Limit: 100, Window: time.Hour}}
		low.Policies = []window.Policy{{Limit: 5, Window: time.Hour}}
		if c.Algorithm.Name() == "layers" {
			high.Algorithm = window.Layers{Coarse: time.Minute, Fine: time.Second}
			low.Algorithm = high.Algorithm
		}
		s.away(t)
		passed := s.passed(t, 60, high)
		s.back()
		s.want(t, "of the small limit", 0, low)
		s.away(t)
		if passed += s.passed(t, 200, high); passed > 100 {
			t.Errorf("%d pass in an hour", passed)
		}
	})
}

// What is left is the rest of the limit, whatever the cost.
func TestStartsFromTheRest(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		if got := s.passed(t, 6, c); got != 6 {
			t.Fatalf("%d of 6 pass", got)
		}
		s.remote.become(down)
		dear := c
		dear.Cost = 5
		if got := s.passed(t, 1, dear); got != 0 {
			t.Error("a cost of 5 passes with 4 left")
		}
		s.want(t, "of what is left", 4, c)
	})
}

// A denial for its cost is known with what it left.
func TestDeniedForItsCost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		s.passed(t, 8, c)
		c.Cost = 3
		s.want(t, "with the store", 0, c)
		s.remote.become(down)
		s.want(t, "without it", 0, c)
		c.Cost = 2
		s.want(t, "of what is left", 1, c)
	})
}

// After an outage in which the limit was used up the key is still denied, and its
// units are in the store once.
func TestReturn(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *site, c window.Charge) {
		s.passed(t, 4, c)
		s.remote.become(down)
		s.want(t, "without the store", 6, c)
		time.Sleep(time.Second)
		s.back()
		if _, ok := c.Algorithm.(window.GCRA); !ok {
			s.want(t, "when it is back", 0, c)
		} else if got := s.passed(t, 20, c); got > 2 { // 2 s of a bucket
			t.Errorf("when it is back: %d pass, want 2 at most", got)
		}
		if s.remote.booked("zone") != 6 || s.remote.bookings() != 1 {
			t.Errorf("%d units were booked in %d calls, want 6 in 1", s.remote.booked("zone"), s.remote.bookings())
		}
		s.passed(t, 3, c)
		if s.remote.bookings() != 1 {
			t.Errorf("%d calls booked it, want 1", s.remote.bookings())
		}
		time.Sleep(12 * time.Second)
		s.want(t, "when a window is over", 10, c)
	})
}

// What is booked has no fields of the request before which that is done: others passed.
func TestBookingHasNoFields(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, time.Minute)
		c.Algorithm, c.Fields = window.Stream{}, []string{"agent", "another"}
		s.remote.become(down)
		s.want(t, "without the store", 10, c)
		s.back()
		s.want(t, "when it is back", 0, c)
		if s.remote.booked("zone") != 10 || len(s.remote.fields) > 0 {
			t.Errorf("%d units were booked, with %q, want 10 without fields", s.remote.booked("zone"), s.remote.fields)
		}
	})
}

// What is owed is forgotten with its window while the store is away.
func TestOwedIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		s.away(t)
		s.want(t, "without the store", 10, c)
		time.Sleep(11 * time.Second)
		s.back()
		s.want(t, "a window later", 10, c)
		if s.remote.bookings() != 0 {
			t.Errorf("%d units were booked, want none", s.remote.booked("zone"))
		}
	})
}

// Units that are owed do not get younger by being asked for.
func TestOwedKeepsItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		s.away(t)
		s.want(t, "without the store", 10, c)
		for range 9 {
			time.Sleep(time.Second)
			s.passed(t, 1, c)
		}
		time.Sleep(time.Second)
		s.back()
		s.want(t, "a window later", 10, c)
		if got := s.remote.booked("zone"); got != 0 {
			t.Errorf("%d units were booked, want none", got)
		}
	})
}

// A request that may have been charged is decided here, counts here, and is never
// booked.
func TestUnknownIsNotBooked(t *testing.T) {
	for _, m := range []mode{lost, dropped} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				c := charge("zone", "key", 10, 10*time.Second)
				s.remote.become(m)
				if got := s.passed(t, 2, c); got != 2 { // a third would open the breaker
					t.Fatalf("%d of 2 pass", got)
				}
				s.remote.become(up)
				if got := s.passed(t, 3, c); got != 3 {
					t.Fatalf("%d of 3 pass", got)
				}
				if s.remote.bookings() != 0 {
					t.Errorf("%d units were booked, want none", s.remote.booked("zone"))
				}
				s.remote.become(down)
				// What the store counted may be without the two, and they count here.
				want := int64(10 - 3 - 2)
				if m == lost {
					want -= 2 // and it was with them
				}
				s.want(t, "here", want, c)
			})
		})
	}
}

// If what is owed cannot be booked, the store is not asked; it is tried again, unless
// it may have been booked.
func TestBookingFails(t *testing.T) {
	for m, want := range map[mode]int64{down: 3, busy: 3, lost: 3, dropped: 0} {
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *site) {
				c := charge("zone", "key", 10, 10*time.Second)
				s.remote.become(busy)
				if got := s.passed(t, 3, c); got != 3 {
					t.Fatalf("%d of 3 pass", got)
				}
				s.remote.become(m)
				c.Cost = 0 // not to add to it
				if _, err := s.Take(t.Context(), []window.Charge{c}); !errors.Is(err, window.ErrUnavailable) {
					t.Errorf("Take = %v, want ErrUnavailable", err)
				}
				s.remote.become(up)
				for range 2 {
					if _, err := s.Take(t.Context(), []window.Charge{c}); err != nil {
						t.Error(err)
					}
				}
				if got := s.remote.booked("zone"); got != want {
					t.Errorf("%d units were booked, want %d", got, want)
				}
				s.remote.become(down)
				c.Cost = 1
				s.want(t, "here", 7-3*b(m == lost), c) // it may count twice here
			})
		})
	}
}

func b(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// Failed bookings are failures to the breaker.
func TestBookingOpensTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		s.remote.become(busy)
		s.passed(t, 1, c)
		s.remote.become(down)
		for range 10 {
			_, _ = s.Take(t.Context(), []window.Charge{c})
		}
		if s.remote.attempts() != 3 {
			t.Errorf("booking was tried %d times, want 3", s.remote.attempts())
		}
	})
}

// A key of several limits starts with what the longest knows; the short one is denied
// for one of its windows at most.
func TestSeveralLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 5, time.Second)
		c.Policies = append(c.Policies, window.Policy{Limit: 20, Window: time.Minute})
		for range 3 {
			s.passed(t, 5, c)
			time.Sleep(time.Second)
		}
		s.remote.become(down)
		s.passed(t, 1, c)
		time.Sleep(time.Second)
		s.want(t, "of the long limit", 5, c)
		time.Sleep(time.Second)
		s.want(t, "and then", 0, c)
		s.back()
		s.want(t, "when the store is back", 0, c)
		if got := s.remote.booked("zone"); got != 5 {
			t.Errorf("%d units were booked, want 5", got)
		}
	})
}

// Without a use for it nothing is known, and nothing is taken from the path of a
// request.
func TestNoUse(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.DisableLocal()
		c := charge("zone", "key", 10, 10*time.Second)
		s.want(t, "with the store", 10, c)
		s.remote.become(down)
		s.want(t, "without it", 10, c)
	})
}

// Errors say what they said.
func TestErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		invalid := c
		invalid.Algorithm = nil
		for _, m := range []mode{up, busy} {
			s.remote.become(m)
			s.passed(t, 1, c) // with something owed, and without
			if _, err := s.TakeLocal(t.Context(), []window.Charge{invalid}, window.ErrUnavailable, false); !errors.Is(err, window.ErrInvalid) {
				t.Errorf("TakeLocal = %v, want ErrInvalid", err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if ds, err := s.TakeLocal(gone, []window.Charge{c}, window.ErrUnavailable, false); ds != nil || err != window.ErrUnavailable { //nolint:errorlint // the very error
				t.Errorf("TakeLocal = %v, %v for a caller that is gone", ds, err)
			}
		}
		if _, err := s.Take(t.Context(), []window.Charge{invalid}); !errors.Is(err, window.ErrInvalid) {
			t.Errorf("Take = %v, want ErrInvalid", err)
		}
	})
}

// A client that goes while what is owed is being booked leaves it booked, once.
func TestClientGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRemote{newRemote(), 60 * time.Millisecond}
		s := &site{Guard: fallback.New(r, fallback.Options{}), remote: r.remote}
		s.EnableLocal()
		defer s.close(t)
		c := charge("zone", "key", 10, 10*time.Second)
		r.become(busy)
		s.passed(t, 3, c)
		r.become(up)
		tries := r.attempts()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Take(gone, []window.Charge{c}); !errors.Is(err, context.Canceled) || r.attempts() != tries {
			t.Errorf("Take of one who has gone = %v, with %d tries to book; want Canceled and none", err, r.attempts()-tries)
		}
		going, cancel := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := s.Take(going, []window.Charge{c}); err == nil {
			t.Error("Take of one who goes: no error")
		}
		time.Sleep(time.Second) // the background may have been first; a booking that is given up is not repeated
		if r.booked("zone") != 3 {
			t.Errorf("%d units were booked, want 3", r.booked("zone"))
		}
	})
}

// CL.THROTTLE counts in the store, and as gcra here; it cannot be booked.
func TestNative(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		c.Algorithm = window.GCRA{Native: window.NativeAuto}
		s.passed(t, 6, c)
		s.remote.become(down)
		s.want(t, "without the store", 4, c)
		s.back()
		if _, err := s.Take(t.Context(), []window.Charge{c}); err != nil || s.remote.bookings() != 0 {
			t.Errorf("Take = %v after %d bookings, want none", err, s.remote.bookings())
		}
	})
}

// Booking that may have been done says nothing of the request that waited for it.
func TestBookingIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 100, time.Minute)
		s.remote.become(busy)
		s.want(t, "without the store", 100, c)
		s.remote.become(lost)
		if _, err := s.Take(t.Context(), []window.Charge{c}); !errors.Is(err, window.ErrUnavailable) || errors.Is(err, window.ErrUnknown) {
			t.Errorf("Take = %v, want that it was not sent", err)
		}
	})
}
