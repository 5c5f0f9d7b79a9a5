package redis_test

import (
	"fmt"
	"slices"
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

// TestInstancesAreListed names the processes that have registered, and says when. A question registers no process.
func TestInstancesAreListed(t *testing.T) {
	own := redistest.Start(t)
	now := int64(1_800_000_000_000)
	open := func() *redis.Store {
		return newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "p", Now: func() int64 { return now }})
	}
	a, b := open(), open()
	list := func(s *redis.Store) (told []string) {
		t.Helper()
		all, err := redis.Full(s).Instances(t.Context())
		if err != nil {
			t.Error(err)
		}
		seen := make(map[string]bool)
		for _, i := range all {
			if i.Name == "" || seen[i.Name] {
				t.Errorf("an instance is called %q", i.Name)
			}
			seen[i.Name] = true
			told = append(told, fmt.Sprint(i.Own, i.Silent))
		}
		return told
	}
	want := func(s *redis.Store, want ...string) {
		t.Helper()
		if got := list(s); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	want(a)
	for _, s := range []*redis.Store{a, b} {
		if _, err := redis.Full(s).Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		now += 4_000
	}
	want(a, "true 8s", "false 4s")
	want(b, "false 8s", "true 4s")
	now += 6_999
	want(b, "false 14.999s", "true 10.999s")
	now++
	want(b, "true 11s") // a has not come for 15 s
	now -= time.Hour.Milliseconds()
	want(b, "false 0s", "true 0s") // the clock has stepped back: both may be there
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
