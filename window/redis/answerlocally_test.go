package redis_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestAnswerLocally compares what is answered without the server, or seen by it, with what the next
// request gets: with units of a lease, a remembered denial, and neither.
func TestAnswerLocally(t *testing.T) {
	for _, algo := range leasable {
		w := watch(t, redis.Options{Prefix: "foretell " + t.Name()})
		c := with(leased(charge("zone", algo.Name(), 40, time.Minute), 8, 10*time.Second), func(c *window.Charge) {
			if c.Algorithm = algo; algo.Name() == "layers" {
				c.Algorithm = suited(algo, time.Minute)
			}
		})
		seen := make(map[engine.Source]int)
		for i := range 45 {
			// A lease may be renewed beside one of these, but not beside each of them.
			var ds []window.Decision
			var by engine.Source
			asks := true
			for attempt := 0; attempt < 20 && asks; attempt++ {
				before := w.asked.Load()
				ds, by = redis.Full(w.Store).AnswerLocally([]window.Charge{c})
				asks = w.asked.Load() != before
			}
			if ds != nil && asks {
				t.Errorf("%v, request %d: the server was asked", algo, i)
			}
			if ds == nil {
				var err error
				if ds, err = w.Peek(t.Context(), []window.Charge{c}); err != nil {
					t.Fatal(err)
				}
			}
			seen[by]++
			got := take(t, w.Store, c)[0]
			want := ds[0]
			if want.Allowed {
				want.Remaining -= c.Cost
			}
			if got.Allowed != want.Allowed || got.Remaining != want.Remaining || got.RetryAfter != want.RetryAfter {
				t.Errorf("%v, request %d: foretold by %q: %+v, got %+v", algo, i, by, ds[0], got)
			}
		}
		if len(seen) != 3 || seen[engine.SourceLease] < 5 || seen[engine.SourceRemembered] < 2 {
			t.Errorf("%v: foretold by %v", algo, seen)
		}
		if err := w.Reset(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if ds, by := redis.Full(w.Store).AnswerLocally([]window.Charge{c}); ds != nil {
			t.Errorf("%v: after a reset: %+v by %q", algo, ds, by)
		}
	}
}

// TestCounterName names the key that the server has.
func TestCounterName(t *testing.T) {
	for _, c := range []window.Charge{
		charge("zone", "a key", 10, time.Hour),
		with(charge("zone", "packed", 10, time.Hour), func(c *window.Charge) { c.Algorithm, c.Pack = window.GCRA{}, 1000 }),
	} {
		for _, secret := range []string{"", "a secret of 16 bytes or more"} {
			s := newStore(t, redis.Options{Prefix: "counter name " + c.Key + secret, KeySecret: secret})
			take(t, s, c)
			if n := server.Client(t).Exists(t.Context(), redis.Full(s).CounterName(c)).Val(); n != 1 {
				t.Errorf("there is no key %q", redis.Full(s).CounterName(c))
			}
			if hash := redis.Full(s).AppendKeyHash(nil, c.Key); redis.Full(s).HashesKeys() != (secret != "") || c.Pack == 0 && strings.HasSuffix(redis.Full(s).CounterName(c), ":"+string(hash)) != (secret != "") {
				t.Errorf("hashes keys %v: %s, and the counter is %s", redis.Full(s).HashesKeys(), hash, redis.Full(s).CounterName(c))
			}
		}
	}
}
