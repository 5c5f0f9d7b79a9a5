package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// startBanned starts a fleet that denies one key as long as its zone denies anyone, and returns what the zone does at a Caddy.
func startBanned(t *testing.T) (f *fleet, everywhere func(what string, status int), mode func(i int) string) {
	t.Helper()
	f = startFleet(t)
	everywhere = func(what string, status int) {
		t.Helper()
		f.everywhere(what, status, "banned")
	}
	mode = func(i int) string {
		t.Helper()
		_, text := f.caddys[i].Tell(t, http.MethodGet, "/sliding_window/zones", "", "")
		var z control.Zones
		if err := json.Unmarshal([]byte(text), &z); err != nil || len(z.Zones) != 1 {
			t.Fatalf("zones: %s, %v", text, err)
		}
		return z.Zones[0].Enforce + " " + z.Zones[0].EnforceUntil
	}
	changed(t, f.client, f.caddys[0].Admin, "set", `{"zone":"api","key":"banned","deny":true}`)
	everywhere("the override denies", http.StatusTooManyRequests)
	return f, everywhere, mode
}

// An order that is over when a Caddy hears of it has replaced the one before it: the Caddy does what is configured, as
// all others do.
func TestShortOrderInAFleet(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f, everywhere, mode := startBanned(t)
	over := func(i int) {
		t.Helper()
		caddyrun.Eventually(t, 20*time.Second, "the order is over", func() bool { return mode(i) == "on " })
	}
	shadow := func() {
		t.Helper()
		enforced(t, f.caddys[0], `{"zone":"api","mode":"shadow","ttl":"10m"}`, http.StatusOK)
		everywhere("shadow", http.StatusOK)
	}

	shadow()
	enforced(t, f.caddys[0], `{"zone":"api","mode":"on","ttl":"1s"}`, http.StatusOK)
	everywhere("shorter than a look", http.StatusTooManyRequests)

	shadow()
	f.server.Stop()
	enforced(t, f.caddys[0], `{"zone":"api","mode":"on","ttl":"3s"}`, http.StatusAccepted)
	over(0)
	f.server.Cont()
	everywhere("over while Redis was away", http.StatusTooManyRequests)

	shadow()
	f.caddys[2].Stop()
	enforced(t, f.caddys[0], `{"zone":"api","mode":"on","ttl":"3s"}`, http.StatusOK)
	over(0)
	f.caddys[2].Cont()
	everywhere("over while a Caddy was stopped", http.StatusTooManyRequests)
}

// A Redis that comes back with an older snapshot, and one that has lost all, changes nothing: the Caddys write the latest order
// again, and one that starts then follows it.
func TestOrderOutlivesRedisInAFleet(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f, everywhere, _ := startBanned(t)
	inRedis := func(what, mode string) {
		t.Helper()
		client := f.server.Client(t)
		caddyrun.Eventually(t, 20*time.Second, what, func() bool {
			var o struct{ Mode string }
			return json.Unmarshal([]byte(client.HGet(t.Context(), "sw:{enforce}", "api").Val()), &o) == nil && o.Mode == mode
		})
	}
	enforced(t, f.caddys[0], `{"zone":"api","mode":"shadow","ttl":"10m"}`, http.StatusOK)
	everywhere("shadow", http.StatusOK)
	if err := f.server.Client(t).Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	enforced(t, f.caddys[0], `{"zone":"api","mode":"on","ttl":"10m"}`, http.StatusOK)
	everywhere("on", http.StatusTooManyRequests)
	enforced(t, f.caddys[0], `{"zone":"api","mode":"config"}`, http.StatusOK)
	everywhere("as configured", http.StatusTooManyRequests)
	f.server.Kill()
	f.server.Restart(t)
	inRedis("the older order is replaced", "config")
	f.caddys[2].End(t)
	f.start(2)
	everywhere("after an older snapshot", http.StatusTooManyRequests)

	enforced(t, f.caddys[1], `{"zone":"api","mode":"shadow","ttl":"10m"}`, http.StatusOK)
	everywhere("shadow again", http.StatusOK)
	if err := f.server.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	inRedis("the lost order is written again", "shadow")
	f.caddys[2].End(t)
	f.start(2)
	everywhere("shadow at a Caddy that starts after FLUSHALL", http.StatusOK)
}
