package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// sharingLogins has a zone that counts failed requests, which cannot be in shadow, beside the one of caddyrun.Sharing.
var sharingLogins = strings.Replace(caddyrun.Sharing, "\trespond ok\n", `	sliding_window {
		zone failed_logins {
			key {header.X-Key}
			limit 1 1h
			count_if status 401
		}
	}
	@login header X-Key guess*
	respond @login no 401
	respond ok
`, 1)

// One command stops all zones of three Caddys from denying, those with count_if and keys with overrides, too. It succeeds, says
// what it did, and takes no override away. Its end, by another command and by its ttl, is everywhere as configured.
func TestPanicSwitchStopsEverything(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleetOf(t, sharingLogins)
	dir := caddyrun.Commands(t)
	command := func(i int, line string) string {
		t.Helper()
		stdout, stderr, ok := shell(t, dir, "", "caddy sliding-window "+line+" --address "+f.caddys[i].Admin)
		if !ok {
			t.Errorf("%s: failed\n%s%s", line, stdout, stderr)
		}
		return stdout
	}
	asConfigured := func(what string) {
		t.Helper()
		f.everywhere(what, http.StatusTooManyRequests, "guess", "guess of a known attacker", "banned")
	}
	stopped := func(what string) {
		t.Helper()
		f.everywhere(what, http.StatusUnauthorized, "guess", "guess of a known attacker")
		f.everywhere(what, http.StatusOK, "banned")
	}
	records := func() string {
		t.Helper()
		var list control.OverrideList
		if _, text := postOverrides(t, f.client, f.caddys[2].Admin, "list", "{}", ""); json.Unmarshal([]byte(text), &list) != nil {
			t.Fatal(text)
		}
		text, _ := json.Marshal(list.Stores[0].Records)
		return string(text)
	}
	changed(t, f.client, f.caddys[0].Admin, "set", `[{"zone":"failed_logins","key":"guess of a known attacker","deny":true},
		{"zone":"failed_logins","all":true,"limits":[{"max":2,"window":"1h"}],"reason":"TICKET-1"},{"zone":"api","key":"banned","deny":true}]`)
	asConfigured("before")
	before := records()

	if out := command(0, "enforce shadow --all --ttl 15m --reason TICKET-9"); !strings.Contains(out, "shadow until 20") ||
		!strings.Contains(out, "exempt until 20") || !strings.Contains(out, "count_if") {
		t.Errorf("the command does not say what it did:\n%s", out)
	}
	stopped("the switch")
	f.caddys[1].End(t)
	f.start(1)
	stopped("the switch after a restart")
	if now := records(); now != before {
		t.Errorf("the switch has changed overrides: %s, were %s", now, before)
	}
	command(1, "enforce config --all")
	asConfigured("after it was ended")

	f.server.Stop() // an incident may be one of Redis
	command(2, "enforce shadow --all --ttl 8s")
	if !f.holds(2, "guess", http.StatusUnauthorized) {
		t.Error("the switch does not hold at once where Redis is away")
	}
	f.server.Cont()
	stopped("the switch when Redis is back")
	asConfigured("after its ttl")
	if now := records(); now != before {
		t.Errorf("the end of the switch has changed overrides: %s, were %s", now, before)
	}
	for _, p := range f.caddys {
		p.Logged(t, `"enforce":"exempt"`)
	}
}
