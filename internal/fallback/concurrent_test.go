package fallback_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestConcurrent lets the store come and go while many ask at once. In the one window that
// the test lasts for, no more passes than the limit, wherever it is decided. In addition,
// the requests in flight when the breaker closes may pass; if it is never open, none may.
func TestConcurrent(t *testing.T) {
	t.Run("busy", func(t *testing.T) { testConcurrent(t, busy, 0) })
	t.Run("away", func(t *testing.T) { testConcurrent(t, down, callers) })
}

const callers = 8

func testConcurrent(t *testing.T, fault mode, over int64) {
	const limit, keys = 300, 4
	s := newSite(t, newRemote())
	var passed [keys]atomic.Int64
	var underWay sync.RWMutex
	var group sync.WaitGroup
	end := make(chan struct{})
	for i := range callers {
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				key := (i + n) % keys
				underWay.RLock()
				ds, _ := s.decide(t, charge("zone", strconv.Itoa(key), limit, time.Hour))
				underWay.RUnlock()
				if window.Allowed(ds) {
					passed[key].Add(1)
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for range 20 {
		for _, m := range []mode{up, fault} {
			underWay.Lock()
			s.remote.become(m)
			underWay.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
	}
	s.remote.become(up)
	close(end)
	group.Wait()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := s.Take(t.Context(), []window.Charge{charge("ping", "key", 1000, time.Hour)}); err == nil {
			break
		} else if time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
	for i := range passed {
		c := charge("zone", strconv.Itoa(i), limit, time.Hour)
		c.Cost = 0
		ds, err := s.Take(t.Context(), []window.Charge{c})
		if err != nil {
			t.Fatal(err)
		}
		switch n := passed[i].Load(); {
		case n > limit+over:
			t.Errorf("key %d: %d requests passed, want %d at most", i, n, limit+over)
		case ds[0].Limit-ds[0].Remaining != min(n, limit):
			t.Errorf("key %d: %d requests passed, and the store has counted %d", i, n, ds[0].Limit-ds[0].Remaining)
		}
		if n := passed[i].Load(); n < limit/2 {
			t.Errorf("key %d: only %d requests passed", i, n)
		}
	}
}

// TestWaitForBooking holds that requests wait while what is owed is being booked
// for that.
func TestWaitForBooking(t *testing.T) {
	s := newSite(t, newRemote())
	c := charge("zone", "key", 10, time.Hour)
	s.remote.become(busy)
	s.want(t, "without the store", 10, c)
	s.remote.become(up)
	before := s.remote.settling.Load()
	s.remote.mu.Lock() // the booking is under way
	var group sync.WaitGroup
	var passed atomic.Int64
	for range 20 {
		group.Go(func() {
			if ds, err := s.Take(t.Context(), []window.Charge{c}); err != nil || window.Allowed(ds) {
				passed.Add(1)
			}
		})
	}
	hurried, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for s.remote.settling.Load() == before {
		time.Sleep(time.Millisecond)
	}
	if _, err := s.Take(hurried, []window.Charge{c}); err == nil {
		t.Error("a request did not wait for the booking")
	}
	s.remote.mu.Unlock()
	group.Wait()
	if passed.Load() > 0 || s.remote.bookings() != 1 || s.remote.booked("zone") != 10 {
		t.Errorf("%d requests passed, %d units were booked in %d calls; want 0, 10 and 1", passed.Load(), s.remote.booked("zone"), s.remote.bookings())
	}
}
