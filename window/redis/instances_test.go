package redis_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestInstances counts stores that share a prefix: those that come, stay away and
// leave, whatever the clock does.
func TestInstances(t *testing.T) {
	own := redistest.Start(t)
	now := int64(1_800_000_000_000)
	open := func(prefix string) *redis.Store {
		return newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: prefix, Now: func() int64 { return now }})
	}
	a, b, c, other := open("p"), open("p"), open("p"), open("q")
	register := func(s *redis.Store, want int64) {
		t.Helper()
		if n, err := redis.Full(s).Register(t.Context()); n != want || err != nil {
			t.Errorf("Register = %d, %v, want %d", n, err, want)
		}
	}
	register(a, 1)
	register(a, 1)
	register(b, 2)
	register(c, 3)
	register(other, 1)
	if err := redis.Full(c).Leave(t.Context()); err != nil {
		t.Error(err)
	}
	register(a, 2)
	now += 14_999
	register(a, 2)
	now++
	register(a, 1) // b has not come for 15 s
	register(b, 2)
	now -= time.Hour.Milliseconds() // and they count from there
	register(a, 2)
	now += 15_000
	register(a, 1) // b has not come since
}

// TestInstancesExpire leaves nothing behind when no process comes any more.
func TestInstancesExpire(t *testing.T) {
	own := redistest.Start(t)
	s, raw := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "p"}), own.Client(t)
	eventually(t, patience, "a count", func() bool {
		n, err := redis.Full(s).Register(t.Context())
		return n == 1 && err == nil
	})
	if ttl := raw.PTTL(t.Context(), "p:2-{instances}").Val(); ttl <= 0 || ttl > 15*time.Second {
		t.Errorf("the key lives for %s, want up to 15s", ttl)
	}
	if err := raw.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "a count by a server that has forgotten the script", func() bool {
		n, err := redis.Full(s).Register(t.Context())
		return n == 1 && err == nil
	})
	if err := redis.Full(s).Leave(t.Context()); err != nil {
		t.Error(err)
	}
	if n := raw.Exists(t.Context(), "p:2-{instances}").Val(); n != 0 {
		t.Error("the key is there when all have left")
	}
}
