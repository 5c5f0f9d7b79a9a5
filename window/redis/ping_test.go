package redis_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestPingTriesWhatFailed takes from the user a command that one algorithm alone
// needs: once a request has failed for it, so does the ping, until it is allowed.
func TestPingTriesWhatFailed(t *testing.T) {
	own := redistest.Start(t)
	admin := own.Client(t)
	permit := func(changes ...string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "limiter", "on", ">secret", "~ping:*"}
		for _, change := range changes {
			args = append(args, change)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	permit(strings.Fields(redis.Permissions)...)
	for _, kind := range []struct {
		command string
		algo    window.Algorithm
		pack    int64
	}{
		{"zadd", window.Zset{}, 0},
		{"set", window.Log{}, 0},
		{"xadd", window.Stream{}, 0},
		{"hset", window.Slices{}, 0},
		{"hset", window.Layers{Coarse: time.Second, Fine: time.Second}, 0},
		{"set", window.GCRA{}, 0},
		{"hset", window.GCRA{}, 100},
		{"hset", window.Slices{Count: 2}, 100},
	} {
		command, c := kind.command, charge("zone", "key", 100, time.Minute)
		c.Algorithm, c.Pack = kind.algo, kind.pack
		s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "ping", Username: "limiter", Password: "secret"})
		permit("-" + command)
		if _, err := s.Take(t.Context(), []window.Charge{c}); !errors.Is(err, window.ErrRefused) {
			t.Fatalf("%s without %s: Take = %v, want ErrRefused", c.Algorithm.Name(), command, err)
		}
		if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
			t.Errorf("%s without %s: Ping = %v, want an error that names permissions", c.Algorithm.Name(), command, err)
		}
		permit("+" + command)
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("%s with %s: Ping = %v", c.Algorithm.Name(), command, err)
		}
		if command != "zadd" {
			permit("-" + command)
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("%s: Ping = %v though nothing failed since the last", c.Algorithm.Name(), err)
			}
			permit("+" + command)
		}
	}
}

// TestTogetherForbidden makes requests fail together for a permission: each error names
// what the user needs.
func TestTogetherForbidden(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	warm(t, s, "key")
	own.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-hset")
	var requests [][]window.Charge
	for i := range 10 {
		requests = append(requests, []window.Charge{charge("zone", strconv.Itoa(i), 3, time.Hour), countedCharge("zone", strconv.Itoa(i))})
	}
	for i, r := range s.TakeBatch(t.Context(), requests) {
		if !errors.Is(r.Err, window.ErrRefused) || !strings.Contains(r.Err.Error(), "lacks a permission; all it needs are ") || !strings.Contains(r.Err.Error(), "+hset ") {
			t.Errorf("request %d: %v, want an error that names permissions", i, r.Err)
		}
	}
}

// TestPingTriesWhatLeasesFailed has the server refuse a lease.
func TestPingTriesWhatLeasesFailed(t *testing.T) {
	own := redistest.Start(t)
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}})
	c := leased(charge("zone", "key", 1_000, time.Hour), 64, time.Minute)
	c.Algorithm = window.Log{}
	takeAhead(t, s, c, 1)
	own.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-mget", "-set", "-setrange")
	var err error
	for range 1_000 {
		if _, err = s.Take(t.Context(), []window.Charge{c}); err != nil {
			break
		}
	}
	if !errors.Is(err, window.ErrRefused) {
		t.Fatalf("Take = %v, want ErrRefused", err)
	}
	if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "lacks a permission") {
		t.Errorf("Ping = %v, want an error that names permissions", err)
	}
}

// TestPingAfterCluster has the address of one server lead to a node of a Cluster for a
// while: it is not well, though it decides on some keys; then it is again.
func TestPingAfterCluster(t *testing.T) {
	p := startProxy(t)
	node := startBehind(t, p)
	s := newStore(t, redis.Options{Addresses: []string{p.addr}})
	two := []window.Charge{charge("one", "key", 100, time.Hour), charge("two", "key", 100, time.Hour)}
	take(t, s, two[0])
	if _, err := s.Take(t.Context(), two); err == nil || !strings.Contains(err.Error(), "add `cluster`") {
		t.Errorf("Take = %v, want advice to add `cluster`", err)
	}
	for range 2 {
		if err := s.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "add `cluster`") {
			t.Errorf("Ping = %v, want advice to add `cluster`", err)
		}
	}
	p.target.Store(&server.Addr)
	node.Kill()
	eventually(t, patience, "the server is well", func() bool { return s.Ping(t.Context()) == nil })
	take(t, s, two...)
}
