package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// The status with the query recent has what each zone has just decided, with denials in shadow apart, and the reason of
// enforce --reason. It shows keys as people write them.
func TestStatusRecent(t *testing.T) {
	c := newControlled(t, "", `handle /own* {
	sliding_window {
		zone own {
			key {header.X-Key}{client_ip}
			limit 1 1h
		}
	}
	respond ok
}
handle /quiet* {
	sliding_window quiet {client_ip} 5 1m
}`)
	status := func(query string) (zones map[string]control.ZoneInfo, text string) {
		_, text = c.ask(http.MethodGet, "/sliding_window/status"+query, "", "")
		var s control.Status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		zones = make(map[string]control.ZoneInfo)
		for _, z := range s.Zones {
			zones[z.Name] = z
		}
		return zones, text
	}
	sum := func(rates []float64) float64 {
		total := 0.0
		for _, r := range rates {
			total += r
		}
		return total
	}
	// wait makes requests until the last samples show what is wanted.
	wait := func(what string, want func(r *control.Recent) bool) {
		t.Helper()
		caddyrun.Eventually(t, 20*time.Second, what, func() bool {
			c.request("own", "a")
			zones, _ := status("?zones&recent")
			r := zones["own"].Recent
			return r != nil && want(r)
		})
	}
	wait("denials", func(r *control.Recent) bool {
		return sum(r.Denied) > 0 && sum(r.Decisions) >= sum(r.Denied) && r.WouldDeny == nil && r.Step == 2 && len(r.Denied) == r.Samples
	})
	c.post("enforce", map[string]any{"zone": "own", "mode": "shadow", "ttl": "1h", "reason": "TICKET-7"}, http.StatusOK, &control.Enforced{})
	wait("denials in shadow, and no more others", func(r *control.Recent) bool {
		last := r.Samples - 1
		return r.WouldDeny != nil && r.WouldDeny[last] > 0 && r.Denied[last] == 0 && r.Decisions[last] > 0 && sum(r.Denied) > 0
	})
	zones, _ := status("?zones&recent")
	if own := zones["own"]; own.EnforceReason != "TICKET-7" || own.Key != "{header.X-Key}{client_ip}" {
		t.Errorf("the zone is %+v", own)
	}
	if quiet := zones["quiet"].Recent; quiet == nil || quiet.Decisions != nil || quiet.Samples == 0 {
		t.Errorf("without requests: %+v", quiet)
	}
	if _, text := status("?zones"); strings.Contains(text, `"recent"`) {
		t.Errorf("without the query: %s", text)
	}
	c.post("enforce", map[string]any{"zone": "own", "mode": "config"}, http.StatusOK, &control.Enforced{})
	wait("denials again, and what was in shadow", func(r *control.Recent) bool {
		last := r.Samples - 1
		return r.Denied[last] > 0 && r.WouldDeny != nil && r.WouldDeny[last] == 0 && !slices.ContainsFunc(r.Decisions, func(d float64) bool { return d > 1e5 })
	})
	if zones, _ := status("?zones"); zones["own"].EnforceReason != "" {
		t.Errorf("as configured, for the reason %q", zones["own"].EnforceReason)
	}
}
