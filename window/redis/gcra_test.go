package redis_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestKeptBuckets makes a second window come to a key, and go again. The key lives for as long as
// the first window matters. Its value has its former length once only the charge's own is kept.
func TestKeptBuckets(t *testing.T) {
	for _, pack := range []int64{0, 1} {
		clock := windowtest.NewClock()
		prefix := freshPrefix("kept")
		s, c := redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, Prefix: prefix})), server.Client(t)
		in := func(length time.Duration) window.Charge {
			w := charge("zone", "key", 10, length)
			w.Algorithm, w.Pack = window.GCRA{}, pack
			return w
		}
		const name = ":2-gcra:zone:key"
		// size is how many bytes the record has, whose key lives for least to most.
		size := func(least, most time.Duration) (n int) {
			t.Helper()
			for _, key := range keys(t, c, prefix+":*") {
				until := time.Duration(c.PExpireTime(t.Context(), key).Val().Milliseconds()-clock.Now()) * time.Millisecond
				if until < least || until > most+most/3 {
					t.Errorf("pack %d: the key lives for %s, want %s to %s", pack, until, least, most)
				}
				if pack == 0 {
					return len(c.Get(t.Context(), prefix+name).Val())
				}
				for field, value := range c.HGetAll(t.Context(), key).Val() {
					if field != "expires" {
						return len(value)
					}
				}
			}
			t.Fatal("there is no key")
			return 0
		}
		for range 9 {
			take(t, s, in(time.Hour))
		}
		simple := size(54*time.Minute, time.Hour)
		if pack == 0 && simple != 26 {
			t.Errorf("a record has %d bytes, want 26", simple)
		}
		clock.Add(1_000)
		take(t, s, in(time.Second))
		mixed := size(59*time.Minute, time.Hour)
		t.Logf("pack %d: %d bytes, and %d with a bucket that is kept", pack, simple, mixed)
		if mixed > 82 {
			t.Errorf("pack %d: a record has %d bytes with a bucket that is kept, want 82 at most", pack, mixed)
		}
		if d := take(t, s, in(time.Hour))[0]; d.Allowed {
			t.Errorf("pack %d: %+v, want what was spent to be known", pack, d)
		}
		clock.Add(3_600_000)
		take(t, s, in(time.Second))
		if n := size(0, time.Hour); n > simple {
			t.Errorf("pack %d: a record has %d bytes when no bucket is kept any more, want %d", pack, n, simple)
		}
	}
}

// TestFullestBucket settles more units than a level can count: both stores stop at 2^53.
func TestFullestBucket(t *testing.T) {
	clock := windowtest.NewClock()
	var got [2][]window.Decision
	for i, s := range []window.Store{openMemory(t, clock), open(t, clock)} {
		c := charge("zone", "key", window.MaxProduct, time.Millisecond)
		c.Algorithm = window.GCRA{}
		for range 3 {
			if err := s.ChargeMore(t.Context(), c, window.MaxProduct); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if got[i], err = s.Peek(t.Context(), []window.Charge{c}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got[0], got[1]) || got[0][0].ResetAfter != time.Millisecond {
		t.Errorf("Peek = %+v, and in Redis %+v, want 1 ms until the bucket is empty", got[0], got[1])
	}
}

// TestDenialLasts has a limit lowered: the key of the counter is there for as long as a denial says,
// and an allowed request in the meantime is not forgotten.
func TestDenialLasts(t *testing.T) {
	s := newStore(t, redis.Options{Addresses: []string{server.Addr}, Timeout: patience})
	admin := server.Client(t)
	for _, units := range []int64{1, 15} {
		for _, pack := range []int64{0, 10_000} {
			t.Run(fmt.Sprintf("%d used, pack %d", units, pack), func(t *testing.T) {
				c := charge("lowered", t.Name(), 20, 4*time.Second)
				c.Algorithm, c.Pack, c.Cost = window.GCRA{}, pack, units
				take(t, s, c)
				c.Cost, c.Policies = 1, []window.Policy{{Limit: 1, Window: 4 * time.Second}}
				d := take(t, s, c)[0]
				if d.Allowed || d.RetryAfter > 4*time.Second || d.RetryAfter < time.Second {
					t.Fatalf("Take = %+v, want a denial for at most a window", d)
				}
				// Milliseconds since 1970, though the client takes them for a time that is left.
				ends := admin.PExpireTime(t.Context(), redis.Full(s).CounterName(c)).Val().Milliseconds()
				if least := d.At + d.RetryAfter.Milliseconds(); ends < least {
					t.Errorf("the key expires %d ms before the denial ends, which says %s", least-ends, d.RetryAfter)
				}
			})
		}
	}
}
