package e2e_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// linesOf returns the lines of a log with a message, without what differs each time.
func linesOf(log *caddyrun.Log, message string) (all []map[string]string) {
	for line := range strings.Lines(log.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil || fields["msg"] != message {
			continue
		}
		texts := make(map[string]string)
		for name, value := range fields {
			if text, ok := value.(string); ok {
				texts[name] = text
			}
		}
		maps.DeleteFunc(texts, func(name, _ string) bool {
			return name == "level" || name == "logger" || name == "msg" || name == "store" || name == "id" || name == "version" || name == "client" || name == "reason"
		})
		all = append(all, texts)
	}
	return all
}

// Each Caddy of a fleet tells once of each override and each order for a zone: what was set, whichever Caddy was told, and
// that it has ended. Times are text everywhere, and what is configured has no end.
func TestEachCaddyTellsTheStory(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleet(t)
	until := make(map[string]string) // by message
	want := func(message string, own bool, fields map[string]string) {
		t.Helper()
		for i, p := range f.caddys {
			text := message
			if i > 0 && !own {
				text = strings.Replace(message, " by an operator", "", 1) + " at another Caddy"
			}
			var lines []map[string]string
			caddyrun.Eventually(t, 20*time.Second, text, func() bool { lines = linesOf(p.Log, text); return len(lines) > 0 })
			if until[message] == "" {
				until[message] = lines[0]["until"]
			}
			wanted := maps.Clone(fields)
			if wanted["until"] != "" {
				wanted["until"] = until[message]
				if _, err := time.Parse(time.RFC3339, until[message]); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
			if len(lines) != 1 || !maps.Equal(lines[0], wanted) {
				t.Errorf("Caddy %d: %q has the lines %v, want one with %v", i, text, lines, wanted)
			}
			p.Log.Reset()
		}
	}
	enforcing := map[string]string{"zone": "api", "by": "otto", "enforce": "shadow", "until": "a time"}
	enforced(t, f.caddys[0], `{"zone":"api","mode":"shadow","ttl":"5s","reason":"TICKET-9","by":"otto"}`, http.StatusOK)
	want("enforcement of zone was changed by an operator", false, enforcing)
	want("enforcement of zone has ended: its time is over, and the zone does what is configured", true, map[string]string{"zone": "api", "by": "otto", "was": "shadow"})
	delete(until, "enforcement of zone was changed by an operator")
	enforced(t, f.caddys[0], `{"zone":"api","mode":"shadow","ttl":"1h","by":"otto"}`, http.StatusOK)
	want("enforcement of zone was changed by an operator", false, enforcing)
	enforced(t, f.caddys[0], `{"zone":"api","mode":"config","by":"otto"}`, http.StatusOK)
	want("enforcement of zone was changed by an operator", false, map[string]string{"zone": "api", "by": "otto", "enforce": "on"})

	override := map[string]string{"zone": "api", "by": "otto", "effect": "600 in 1m", "for": "key", "until": "a time"}
	changed(t, f.client, f.caddys[0].Admin, "set", `{"zone":"api","key":"anna","limits":[{"max":600,"window":"1m"}],"ttl":"5s","by":"otto"}`)
	want("override was set", false, override)
	override["until"] = until["override was set"]
	want("override has ended", true, override)
	changed(t, f.client, f.caddys[0].Admin, "set", `{"zone":"api","key":"anna","deny":true,"by":"otto"}`)
	override = map[string]string{"zone": "api", "by": "otto", "effect": "deny", "for": "key"}
	want("override was set", false, override)
	changed(t, f.client, f.caddys[0].Admin, "delete", `{"zone":"api","key":"anna","by":"otto"}`)
	want("override was deleted", false, override)
	if status, text := f.caddys[0].Tell(t, http.MethodPost, "/sliding_window/reset", "application/json", `{"zone":"api","key":"anna","by":"otto","reason":"TICKET-7"}`); status != http.StatusOK {
		t.Errorf("reset: %d %s", status, text)
	}
	// Only the asked Caddy writes this line.
	var resets []map[string]string
	caddyrun.Eventually(t, 20*time.Second, "the line of the reset", func() bool {
		resets = linesOf(f.caddys[0].Log, "counter was reset by an operator")
		return len(resets) > 0
	})
	if len(resets) != 1 || !maps.Equal(resets[0], map[string]string{"zone": "api", "by": "otto"}) {
		t.Errorf("reset: %v", resets)
	}
	for i, p := range f.caddys {
		if log := p.Log.String(); strings.Contains(log, "anna") {
			t.Errorf("the log of Caddy %d has the key: %s", i, log)
		}
	}
}
