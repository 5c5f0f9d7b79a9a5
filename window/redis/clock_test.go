package redis_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestClientsClocksDiffer lets two clients take turns on one limit. The clock of
// one stands at the beginning of the year 2000, as it does in a bubble of
// synctest; it has no effect.
func TestClientsClocksDiffer(t *testing.T) {
	o := redis.Options{Addresses: []string{server.Addr}, Prefix: "clocks", Timeout: patience}
	today := newStore(t, o)
	charges := []window.Charge{charge("zone", "key", 10, 10*time.Second)}
	ask, answers := make(chan struct{}), make(chan []window.Decision)
	defer close(ask)
	go func() {
		for range ask {
			ds, _ := today.Take(t.Context(), charges)
			answers <- ds
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		past := redis.New(o)
		defer func() { _ = past.Close() }()
		if ago := time.Since(time.Unix(0, 0)); ago > 31*365*24*time.Hour {
			t.Fatalf("this clock is not in the past, but at %s", time.Now())
		}
		var first int64
		for n := range 20 {
			var d window.Decision
			if n%2 == 0 {
				d = take(t, past, charges...)[0]
			} else {
				ask <- struct{}{}
				ds := <-answers
				if ds == nil {
					t.Fatal("the client of today got no answer")
				}
				d = ds[0]
			}
			if n == 0 {
				first = d.At
			}
			if d.Allowed != (n < 10) || d.Remaining != max(0, 9-int64(n)) {
				t.Errorf("Take %d = %+v, want 10 to pass", n, d)
			}
			if !d.Allowed && d.At+d.RetryAfter.Milliseconds() != first+10_000 {
				t.Errorf("Take %d = %+v, want the time %d to retry", n, d, first+10_000)
			}
		}
	})
}
