package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// enforced tells a Caddy how to enforce zones, wants a status, and returns the answer.
func enforced(t *testing.T, p *caddyrun.Process, body string, want int) (e control.Enforced) {
	t.Helper()
	status, text := p.Tell(t, http.MethodPost, "/sliding_window/enforce", "application/json", body)
	if status != want || json.Unmarshal([]byte(text), &e) != nil || len(e.Zones) != 1 {
		t.Fatalf("%s: got %d %s, want %d", body, status, text, want)
	}
	return e
}

// What an operator tells one of three Caddys with one Redis about a zone holds on all within 3 s, for keys with overrides, too,
// and ends on all by its ttl. It survives a restart, a Redis that has lost it, and one that is away.
func TestEnforceInAFleet(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleet(t)
	server, client, caddys := f.server, f.client, &f.caddys
	everywhere := func(what string, status int) {
		t.Helper()
		f.everywhere(what, status, "banned", "little")
	}
	changed(t, client, caddys[0].Admin, "set", `[{"zone":"api","key":"banned","deny":true},{"zone":"api","key":"little","limits":[{"max":0,"window":"1h"}]}]`)
	everywhere("overrides deny", http.StatusTooManyRequests)

	enforced(t, caddys[0], `{"zone":"api","mode":"shadow","ttl":"1h","reason":"TICKET-9"}`, http.StatusOK)
	everywhere("shadow", http.StatusOK)
	caddys[2].Logged(t, "enforcement of zone was changed at another Caddy", "TICKET-9")
	caddys[1].End(t)
	f.start(1)
	everywhere("shadow after a restart", http.StatusOK)
	if err := server.Client(t).Del(t.Context(), "sw:{enforce}").Err(); err != nil {
		t.Fatal(err)
	}
	enforced(t, caddys[1], `{"zone":"api","mode":"config"}`, http.StatusOK)
	everywhere("as configured", http.StatusTooManyRequests)

	enforced(t, caddys[2], `{"zone":"api","mode":"mark","ttl":"6s"}`, http.StatusOK)
	everywhere("mark for 6 s", http.StatusOK)
	everywhere("its end", http.StatusTooManyRequests)

	server.Stop()
	e := enforced(t, caddys[0], `{"zone":"api","mode":"shadow","ttl":"1h"}`, http.StatusAccepted)
	server.Cont()
	if z := e.Zones[0]; z.Enforce != "shadow" || !strings.Contains(z.Note, "the store is away") {
		t.Errorf("while Redis is away: got %+v", e)
	}
	everywhere("shadow when Redis is back", http.StatusOK)
	if ttl := server.Client(t).PTTL(t.Context(), "sw:{enforce}").Val(); ttl <= time.Hour {
		t.Errorf("sw:{enforce} lives for %s", ttl)
	}
}
