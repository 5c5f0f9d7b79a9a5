package redis_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestClientsClocksDiffer lets two clients take turns on one limit. The clock of
// one is at the beginning of the year 2000, as in a bubble of synctest. It has no
// effect.
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

// TestPromotedClock makes a server take over whose clock is 5 s behind, or ahead, and
// the old one come back: what was spent counts for a window of the clock that
// decides, no client waits longer, and nothing is left or spent that is not there.
func TestPromotedClock(t *testing.T) {
	const limit, length = 10, 60_000
	for _, algo := range algorithms {
		for _, differs := range []int64{-5_000, 5_000} {
			old, next := windowtest.NewClock(), windowtest.NewClock()
			next.Add(differs)
			prefix := fmt.Sprintf("promoted%d", differs)
			s := newStore(t, redis.Options{Now: old.Now, Prefix: prefix})
			promoted := newStore(t, redis.Options{Now: next.Now, Prefix: prefix})
			c := charge("zone", "key", limit, length*time.Millisecond)
			c.Algorithm = suited(algo, time.Second)
			for range limit {
				if d := take(t, s, c)[0]; !d.Allowed {
					t.Fatalf("%s: %+v before the limit was reached", algo.Name(), d)
				}
			}
			check := func(what string, d window.Decision) {
				t.Helper()
				if d.Remaining < 0 || d.Remaining > limit || d.RetryAfter < 0 || d.RetryAfter > length*time.Millisecond {
					t.Errorf("%s, %d ms: %s: %+v", algo.Name(), differs, what, d)
				}
			}
			d := take(t, promoted, c)[0]
			check("promoted", d)
			_, even := algo.(window.GCRA) // frees its units one after the other
			if d.Allowed && !even {
				t.Errorf("%s, %d ms: promoted: %+v, want a denial", algo.Name(), differs, d)
			}
			if !d.Allowed {
				next.Add(d.RetryAfter.Milliseconds())
				old.Add(d.RetryAfter.Milliseconds())
				if d := take(t, promoted, c)[0]; !d.Allowed {
					t.Errorf("%s, %d ms: %+v after the wait that was asked for", algo.Name(), differs, d)
				}
			}
			check("back at the old one", take(t, s, c)[0])
			old.Add(length)
			if d := take(t, s, c)[0]; !d.Allowed {
				t.Errorf("%s, %d ms: a window later: %+v", algo.Name(), differs, d)
			}
		}
	}
}
