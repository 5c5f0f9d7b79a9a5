package fallback_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestReturnToRedis makes a Redis refuse all writes for a while: what it had counted and
// what passes here are the limit together, and in the end it has counted all of it, once.
func TestReturnToRedis(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	memory := func(limit string) {
		t.Helper()
		if err := admin.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	options := redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, Prefix: "return"}
	store, other := redis.New(options).Engine().(fallback.Store), redis.New(options)
	s := &site{Guard: fallback.New(store, fallback.Options{})}
	s.EnableLocal()
	defer func() {
		_ = s.Close()
		_ = store.Close()
		_ = other.Close()
	}()

	const limit = 100
	charges := map[string]window.Charge{}
	add := func(name string, change func(c *window.Charge)) {
		c := charge(name, "key", limit, 10*time.Hour)
		change(&c)
		charges[name] = c
	}
	for _, v := range variants {
		if v.name != "layers" && v.name != "adaptive" { // many slices in ten hours
			add(v.name, func(c *window.Charge) { c.Algorithm = v.algorithm })
		}
	}
	add("packed", func(c *window.Charge) { c.Algorithm, c.Pack = window.GCRA{}, 1000 })
	add("leased", func(c *window.Charge) { c.Lease = window.Lease{Units: 20, TTL: time.Hour} })
	add("leased log", func(c *window.Charge) {
		c.Algorithm, c.Lease = window.Log{}, window.Lease{Units: 20, TTL: time.Hour}
	})
	counted := func(c window.Charge) int64 {
		ds, err := other.Peek(t.Context(), []window.Charge{c})
		if err != nil {
			t.Fatal(err)
		}
		return ds[0].Limit - ds[0].Remaining
	}

	for name, c := range charges {
		if got := s.passed(t, 40, c); got != 40 {
			t.Fatalf("%s: %d of 40 pass with Redis", name, got)
		}
	}
	memory("1")
	for name, c := range charges {
		if got := s.passed(t, limit, c); got != limit-40 {
			t.Errorf("%s: %d pass without Redis, want %d", name, got, limit-40)
		}
	}
	memory("0")
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if _, err := s.Take(t.Context(), []window.Charge{charge("awake", "key", limit, time.Hour)}); err == nil {
			break
		} else if time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
	for name, c := range charges {
		if got := s.passed(t, 10, c); got != 0 {
			t.Errorf("%s: %d pass when Redis is back, want none", name, got)
		}
		for start := time.Now(); counted(c) != limit; time.Sleep(5 * time.Millisecond) { // leases are booked in the background
			if time.Since(start) > 10*time.Second {
				t.Errorf("%s: Redis has counted %d, want %d", name, counted(c), limit)
				break
			}
		}
	}
}

// TestPermissionLost takes a permission from the user of Redis, and gives it back. Units
// that pass in between are booked: Redis has certainly not run what it refused.
func TestPermissionLost(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	permit := func(without string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret"}
		for _, p := range append([]string{"~lost:*"}, strings.Fields(redis.Permissions)...) {
			if p != without {
				args = append(args, p)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	permit("")
	store := redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, Prefix: "lost", Username: "limiter", Password: "secret"}).Engine().(fallback.Store)
	s := &site{Guard: fallback.New(store, fallback.Options{})}
	s.EnableLocal()
	defer func() {
		_ = s.Close()
		_ = store.Close()
	}()
	for _, without := range []string{"+evalsha", "~lost:*"} {
		for _, v := range variants {
			c := charge(v.name, without, 5, time.Hour)
			if c.Algorithm = v.algorithm; v.name == "layers" || v.name == "adaptive" { // many slices in an hour
				c.Policies[0].Window = time.Minute
			}
			passed := s.passed(t, 2, c)
			permit(without)
			passed += s.passed(t, 3, c)
			permit("")
			for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
				if _, err := s.Take(t.Context(), []window.Charge{charge("awake", "key", 1, time.Hour)}); err == nil {
					break
				} else if time.Since(start) > 10*time.Second {
					t.Fatal(err)
				}
			}
			if passed += s.passed(t, 10, c); passed != 5 {
				t.Errorf("%s without %s for a while: %d pass, want 5", v.name, without, passed)
			}
		}
	}
}
