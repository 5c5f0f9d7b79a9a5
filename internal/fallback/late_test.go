package fallback_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// A late answer does not include units that passed here, or were booked, after its request
// was sent: these count beside it.
func TestLateAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		c := charge("zone", "key", 10, 10*time.Second)
		late := func(used int64) {
			now := time.Now().UnixMilli()
			s.Note(0, 1, []window.Charge{c}, []window.Decision{{Allowed: true, Limit: 10, Remaining: 10 - used, ResetAfter: time.Hour, At: now}})
		}
		s.remote.become(busy)
		if got := s.passed(t, 4, c); got != 4 {
			t.Fatalf("%d of 4 pass", got)
		}
		late(2)
		s.want(t, "beside 2 and 4", 4, c)
		// The eight are booked, and the decision that would tell is not heard of.
		s.remote.failTake = true
		s.remote.become(up)
		if _, err := s.Take(t.Context(), []window.Charge{c}); err == nil || s.remote.booked("zone") != 8 {
			t.Fatalf("Take = %v, and %d units are booked; want an error, and 8", err, s.remote.booked("zone"))
		}
		s.remote.become(busy)
		late(1)
		s.want(t, "beside 1 and 8", 1, c)
	})
}

// slowRemote takes its time to book.
type slowRemote struct {
	*remote
	booking time.Duration
}

func (r *slowRemote) Timeout() time.Duration { return 100 * time.Millisecond }

func (r *slowRemote) ChargeMore(ctx context.Context, c window.Charge, units int64) error {
	select {
	case <-ctx.Done():
		return errors.Join(window.ErrUnavailable, window.ErrUnknown, ctx.Err())
	case <-time.After(r.booking):
	}
	return r.remote.ChargeMore(ctx, c, units)
}

func (r *slowRemote) TakeInto(ctx context.Context, _ []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	return r.Take(ctx, charges)
}

func (r *slowRemote) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	if r.mode == up { // hangs
		<-ctx.Done()
		return nil, errors.Join(window.ErrUnavailable, window.ErrUnknown, ctx.Err())
	}
	return r.remote.Take(ctx, charges)
}

// Booking and asking take no longer together than one of them may.
func TestBookingHasTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRemote{newRemote(), 60 * time.Millisecond}
		s := &site{Guard: fallback.New(r, fallback.Options{}), remote: r.remote}
		s.EnableLocal()
		defer s.close(t)
		one, two := charge("one", "key", 10, time.Hour), charge("two", "key", 10, time.Hour)
		r.become(busy)
		s.passed(t, 1, one, two)
		r.become(up)
		start := time.Now()
		_, err := s.Take(t.Context(), []window.Charge{one, two})
		if took := time.Since(start); took != r.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Take = %v after %s, want DeadlineExceeded after %s", err, took, r.Timeout())
		}
	})
}

// Buckets that take longer than their window to run empty are owed for as long, and
// counters that differ in their algorithm or have several limits are owed apart.
func TestOwedApart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		bucket := charge("bucket", "key", 10, 10*time.Second)
		bucket.Algorithm, bucket.Cost = window.GCRA{Burst: 30}, 30 // 30 s
		zset, log := charge("zone", "key", 10, time.Hour), charge("zone", "key", 10, time.Hour)
		zset.Cost, log.Cost, log.Algorithm = 3, 5, window.Log{}
		several := charge("several", "key", 10, time.Hour)
		several.Policies = append(several.Policies, window.Policy{Limit: 10, Window: time.Second})
		s.remote.become(busy)
		s.passed(t, 1, bucket)
		s.passed(t, 1, zset)
		s.passed(t, 1, log)
		s.passed(t, 1, several)
		time.Sleep(25 * time.Second)
		s.remote.become(up)
		for _, c := range []struct {
			charge window.Charge
			left   int64
		}{{bucket, 0}, {zset, 7}, {log, 5}, {several, 9}} {
			c.charge.Cost = 0
			ds, err := s.Take(t.Context(), []window.Charge{c.charge})
			if err != nil || ds[0].Remaining != c.left {
				t.Errorf("%s: Take = %+v, %v, want %d remaining", c.charge.Zone, ds, err, c.left)
			}
		}
	})
}

// The number of counters with owed units is bounded. Units of further counters are
// forgotten, and do not share.
func TestOwedIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		s.BoundOwed(10)
		s.remote.become(busy)
		for i := range 20 {
			s.passed(t, 1, charge("zone", string(rune('a'+i)), 10, time.Hour))
		}
		s.remote.become(up)
		for i := range 20 {
			c := charge("zone", string(rune('a'+i)), 10, time.Hour)
			c.Cost = 0
			if _, err := s.Take(t.Context(), []window.Charge{c}); err != nil {
				t.Error(err)
			}
		}
		if got := s.remote.booked("zone"); got != 10 || s.remote.bookings() != 10 {
			t.Errorf("%d units were booked in %d calls, want 10 in 10", got, s.remote.bookings())
		}
	})
}

// What was known is taken over in one step: no request passes between.
func TestTakeOverIsAtomic(t *testing.T) {
	s := newSite(t, newRemote())
	s.remote.become(busy)
	cause := errors.Join(window.ErrUnavailable, window.ErrBusy)
	for key := range 1000 {
		c := charge("zone", strconv.Itoa(key), 10, time.Hour)
		s.Note(0, 1, []window.Charge{c}, []window.Decision{{Limit: 10, Remaining: 4, ResetAfter: time.Hour, At: 1}})
		var passed atomic.Int64
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 3 {
					if ds, err := s.TakeLocal(t.Context(), []window.Charge{c}, cause, false); err != nil || window.Allowed(ds) {
						passed.Add(1)
					}
				}
			})
		}
		group.Wait()
		if got := passed.Load(); got != 4 {
			t.Fatalf("key %d: %d pass, want 4", key, got)
		}
	}
}
