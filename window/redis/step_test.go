package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestExpiryAfterStep steps the clock back: what is written next, by a denial or by a unit that
// passes, leaves no key that lives for longer than its counters can matter.
func TestExpiryAfterStep(t *testing.T) {
	const limit, length = 4, 3_000 // ms
	type counter struct {
		name string
		algo window.Algorithm
		pack int64
	}
	counters := []counter{{"gcra, packed", window.GCRA{}, 1}, {"slices, packed", window.Slices{Count: 3}, 1}}
	for _, algo := range algorithms {
		counters = append(counters, counter{algo.Name(), suited(algo, length/2*time.Millisecond), 0})
	}
	for _, one := range counters {
		for _, back := range []time.Duration{time.Second, 5 * time.Second, time.Hour} {
			for _, spent := range []int{1, limit} {
				clock := windowtest.NewClock()
				prefix := freshPrefix("back")
				s, c := redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, Prefix: prefix})), server.Client(t)
				what := fmt.Sprintf("%s, %s back, %d spent", one.name, back, spent)
				w := window.Charge{
					Zone: "zone", Key: "key", Cost: 1, Algorithm: one.algo, Pack: one.pack,
					Policies: []window.Policy{{Limit: limit, Window: length * time.Millisecond}},
				}
				other := w
				other.Key = "other" // in the same hash if they are packed
				for range spent {
					take(t, s, w)
					take(t, s, other)
				}
				clock.Add(-back.Milliseconds())
				if d := take(t, s, w)[0]; d.Allowed != (spent < limit) {
					t.Errorf("%s: %+v", what, d)
				}
				take(t, s, other)
				most := clock.Now() + length + 100
				most += (most - clock.Now()) / 2 // log, gcra and hashes that are shared live longer
				for _, key := range keys(t, c, prefix+":*") {
					if until := c.PExpireTime(t.Context(), key).Val().Milliseconds(); until > most {
						t.Errorf("%s: %s lives for %d ms, want %d at most", what, key, until-clock.Now(), most-clock.Now())
					}
				}
				clock.Add(length)
				if d := take(t, s, w)[0]; !d.Allowed {
					t.Errorf("%s, a window later: %+v", what, d)
				}
			}
		}
	}
}

// TestDeniedBeforeStep has the clock of the server step back while a denial is remembered, and
// a client ask on and on: no client waits longer than one window, and the tenth of it for
// which a denial is remembered.
func TestDeniedBeforeStep(t *testing.T) {
	const limit, tick = 4, 25 * time.Millisecond
	for _, algo := range algorithms {
		longest := time.Duration(0)
		for _, length := range []time.Duration{time.Second, 3 * time.Second, 60 * time.Second} {
			for _, back := range []time.Duration{time.Second, 5 * time.Second, time.Hour} {
				for _, after := range []time.Duration{tick, 300 * time.Millisecond, 700 * time.Millisecond} {
					clock, process := windowtest.NewClock(), time.Duration(0)
					s := newStore(t, redis.Options{Now: clock.Now})
					redis.TellTime(s, func() time.Duration { return process })
					add := func(d time.Duration) {
						process += d
						clock.Add(d.Milliseconds())
					}
					w := charge("zone", "key", limit, length)
					w.Algorithm = suited(algo, length/2)
					for take(t, s, w)[0].Allowed {
					}
					for gone := tick; gone < after; gone += tick {
						add(tick)
						take(t, s, w)
					}
					clock.Add(-back.Milliseconds())
					stepped := process
					for !take(t, s, w)[0].Allowed {
						add(tick)
					}
					waited := process - stepped
					if most := length + min(length/10, time.Second) + tick; waited > most {
						t.Errorf("%s, %s, %s back after %s: denied for %s, want %s at most", algo.Name(), length, back, after, waited, most)
					}
					if length == 3*time.Second {
						longest = max(longest, waited)
					}
				}
			}
		}
		t.Logf("%s: denied for up to %s with a window of 3s", algo.Name(), longest)
	}
}
