package redis_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestConnect reaches one server in every way.
func TestConnect(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	own := redistest.Start(t, "--unixsocket", socket)
	c := own.Client(t)
	if err := c.Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">secret", "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	sentinel := redistest.StartSentinel(t, own, "main")
	parsed := func(url string) redis.Options {
		o, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	left := int64(100)
	for name, o := range map[string]redis.Options{
		"an address":       {Addresses: []string{own.Addr}},
		"a socket":         {Addresses: []string{socket}},
		"a user":           {Addresses: []string{own.Addr}, Username: "limiter", Password: "secret"},
		"a Sentinel":       {Addresses: []string{sentinel.Addr}, Master: "main"},
		"a URL":            parsed("redis://" + own.Addr),
		"a user in a URL":  parsed("redis://limiter:secret@" + own.Addr + "/0"),
		"a socket's URL":   parsed("unix://limiter:secret@" + socket),
		"a Sentinel's URL": parsed("redis://" + sentinel.Addr + "?master_name=main&username=limiter&password=secret"),
	} {
		o.Prefix = "same"
		left--
		if d := take(t, newStore(t, o), charge("zone", "key", 100, time.Hour))[0]; d.Remaining != left {
			t.Errorf("with %s: Take = %+v, want %d remaining", name, d, left)
		}
	}
	for name, o := range map[string]redis.Options{
		"another database":        {Addresses: []string{own.Addr}, Prefix: "same", DB: 3},
		"another prefix":          {Addresses: []string{own.Addr}, Prefix: "other"},
		"another database's URL":  parsed("redis://" + own.Addr + "/4"),
		"another Sentinel's base": {Addresses: []string{sentinel.Addr}, Master: "main", DB: 5, Prefix: "same"},
	} {
		if d := take(t, newStore(t, o), charge("zone", "key", 100, time.Hour))[0]; d.Remaining != 99 {
			t.Errorf("with %s: Take = %+v, want an empty history", name, d)
		}
	}
	byDefault := redis.New(redis.Options{Addresses: []string{own.Addr}, Timeout: patience})
	defer func() { _ = byDefault.Close() }()
	take(t, byDefault, charge("zone", "key", 100, time.Hour))
	if n := c.Exists(t.Context(), "sw:2-zset:zone:key").Val(); n != 1 {
		t.Errorf("keys %v, want sw:2-zset:zone:key among them", keys(t, c, "*"))
	}
}

// TestSentinelWithoutMaster has Sentinels that watch no master of the name: nothing was
// sent to a server, and the error says where to look.
func TestSentinelWithoutMaster(t *testing.T) {
	sentinel := redistest.StartSentinel(t, redistest.Start(t), "main")
	s := newStore(t, redis.Options{Addresses: []string{sentinel.Addr}, Master: "mine"})
	_, err := s.Take(t.Context(), []window.Charge{charge("zone", "key", 100, time.Hour)})
	if !errors.Is(err, window.ErrUnavailable) || errors.Is(err, window.ErrUnknown) || !strings.Contains(err.Error(), "redis sentinel mine") || !strings.Contains(err.Error(), "look at `master`") {
		t.Errorf("got %v, want that the store is unavailable, charged nothing, and where to look", err)
	}
}
