package redis_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
)

// patience is how long a server may take to do as it was told.
const patience = 10 * time.Second

// algorithms are one of each name.
var algorithms = []window.Algorithm{
	window.Zset{}, window.Log{}, window.Stream{}, window.Slices{}, window.Layers{Coarse: time.Second, Fine: time.Second}, window.GCRA{},
}

// suited returns the algorithm with options that go with windows from shortest to
// a hundred times as long.
func suited(algo window.Algorithm, shortest time.Duration) window.Algorithm {
	if _, ok := algo.(window.Layers); ok {
		part := max(time.Millisecond, (shortest / 10).Truncate(time.Millisecond))
		return window.Layers{Coarse: part, Fine: part}
	}
	return algo
}

var charge = windowtest.Charge

func take(t *testing.T, s *redis.Store, charges ...window.Charge) []window.Decision {
	t.Helper()
	ds, err := s.Take(t.Context(), charges)
	if err != nil {
		t.Fatalf("Take(%v): %v", charges, err)
	}
	return ds
}

// warm waits until a store with a short timeout has decided on a key.
func warm(t *testing.T, s *redis.Store, key string) {
	t.Helper()
	eventually(t, patience, "a first decision", func() bool {
		_, err := s.Take(t.Context(), []window.Charge{charge("warm", key, 10, time.Hour)})
		return err == nil
	})
}

// eventually waits until ok, for the time that is allowed.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > within {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// apart returns a charge like c on a counter that is forgotten apart from those of the others.
func apart(s *redis.Store, c window.Charge, others ...window.Charge) window.Charge {
	d := redis.Denials(s)
	for i := range others {
		if d.Slot(&c) == d.Slot(&others[i]) {
			c.Key += "'"
			return apart(s, c, others...)
		}
	}
	return c
}

// newNaming returns how a store of these options names counters.
func newNaming(o redis.Options) *naming.Naming {
	return &naming.New(o.Prefix, o.KeySecret, o.FormerKeySecret)[0]
}

// inFlight returns how many batches are under way to the only server.
func inFlight(s *redis.Store) int {
	n, _ := redis.Load(s)
	return n
}
