package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// needy are zones of which an inspection by key cannot know something, as a request tells it.
const needy = `map {header.X-Key} {per_minute} {per_day} {length} {
	~. 6 100 1m
	default "" "" ""
}
handle /plan {
	sliding_window {
		zone plan {
			key {header.X-Key}
			limit {per_minute} 1m
			limit {per_day} 1d
			fallback 2 1m
		}
		{store}
	}
	respond ok
}
handle /mixed {
	sliding_window {
		zone mixed {
			key {header.X-Key}
			limit 4 1h
			limit {per_day} {length}
			limit {env.SLIDING_WINDOW_TEST_UNSET} 2h
			fallback 5 3h
			algorithm log
		}
		{store}
	}
	respond ok
}
handle /priced {
	sliding_window {
		zone priced {
			key {header.X-Key}
			limit 4 1h
			cost {header.X-Cost}
		}
		{store}
	}
	respond ok
}
handle /tokens {
	sliding_window {
		zone tokens {
			key {header.X-Key}
			limit 4 1h
			settle {
				json cost
				reserve_json max
				on_missing keep
			}
		}
		{store}
	}
	respond ok
}
handle /bucket {
	sliding_window {
		zone bucket {
			key {header.X-Key}
			limit {per_minute} 1m
			fallback 2 1m
			algorithm gcra
		}
		{store}
	}
	respond ok
}
`

// needyAnswer is what an inspection says in JSON of limits, the cost and the verdict.
type needyAnswer struct {
	Cost      *int64 `json:"cost"`
	WouldPass *bool  `json:"would_pass"`
	Limits    []struct {
		Max, Used, Remaining int64
		Window, Source       string
	} `json:"limits"`
	NeedsRequest *struct {
		Limits []struct {
			Max, Window string
			Used        *int64
			ResetAfter  *float64 `json:"reset_after"`
		} `json:"limits"`
		Cost string `json:"cost"`
	} `json:"needs_request"`
}

// An inspection by key gives no verdict that a limit or a cost decides which needs a request. It lists all limits, with
// what is used of each. A limit that is known to deny, denies all the same.
func TestInspectNeedsRequest(t *testing.T) {
	server := redistest.Start(t)
	for name, store := range map[string]string{"memory": "store memory", "redis": "store redis {\naddress " + server.Addr + "\ntimeout 10s\n}"} {
		t.Run(name, func(t *testing.T) {
			c := newControlled(t, "", strings.ReplaceAll(needy, "{store}", store))
			key := rand.Text()
			spend := func(zone string, n int) {
				for range n {
					if status, _, _ := c.request(zone, key); status != http.StatusOK {
						t.Fatalf("%s: got status %d", zone, status)
					}
				}
			}
			inspect := func(zone string) (a needyAnswer) {
				status, text := c.ask(http.MethodPost, "/sliding_window/inspect", "application/json", `{"zone":"`+zone+`","key":"`+key+`"}`)
				if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
					t.Fatalf("%s: %d %s", zone, status, text)
				}
				t.Logf("%s: %s", zone, text)
				return a
			}

			spend("plan", 3)
			a := inspect("plan")
			if a.WouldPass != nil || len(a.Limits) != 0 || a.NeedsRequest == nil || len(a.NeedsRequest.Limits) != 2 || a.Cost == nil || *a.Cost != 1 {
				t.Fatalf("plan: got %+v", a)
			}
			for i, want := range []control.LimitInfo{{Max: "{per_minute}", Window: "1m"}, {Max: "{per_day}", Window: "24h"}} {
				got := a.NeedsRequest.Limits[i]
				if got.Max != want.Max || got.Window != want.Window || got.Used == nil || *got.Used != 3 || got.ResetAfter == nil || *got.ResetAfter <= 0 {
					t.Errorf("plan: limit %d is %+v, want 3 used of %+v", i, got, want)
				}
			}

			spend("mixed", 3)
			a = inspect("mixed")
			if a.WouldPass != nil || len(a.Limits) != 2 || a.Limits[0].Used != 3 || a.Limits[0].Max != 4 || a.Limits[1].Source != control.SourceFallback || len(a.NeedsRequest.Limits) != 1 ||
				a.NeedsRequest.Limits[0].Max != "{per_day}" || a.NeedsRequest.Limits[0].Window != "{length}" || a.NeedsRequest.Limits[0].Used != nil {
				t.Errorf("mixed: got %+v", a)
			}
			spend("mixed", 1)
			if a = inspect("mixed"); a.WouldPass == nil || *a.WouldPass || a.Limits[0].Remaining != 0 {
				t.Errorf("mixed, with a known limit that is used up: got %+v", a)
			}

			spend("priced", 3)
			if a = inspect("priced"); a.WouldPass != nil || a.Cost != nil || a.NeedsRequest == nil || a.NeedsRequest.Cost != "{header.X-Cost}" || a.Limits[0].Used != 3 {
				t.Errorf("priced: got %+v", a)
			}

			spend("tokens", 3)
			if a = inspect("tokens"); a.WouldPass != nil || a.Cost != nil || a.NeedsRequest == nil || a.NeedsRequest.Cost != "body" || a.Limits[0].Used != 3 {
				t.Errorf("tokens: got %+v", a)
			}
			spend("tokens", 1)
			if a = inspect("tokens"); a.WouldPass == nil || *a.WouldPass {
				t.Errorf("tokens, none of which are left: got %+v", a)
			}

			spend("bucket", 1)
			if a = inspect("bucket"); a.WouldPass != nil || len(a.NeedsRequest.Limits) != 1 || a.NeedsRequest.Limits[0].Used != nil {
				t.Errorf("bucket: got %+v", a)
			}

			// What an override decides needs no request.
			c.post("overrides/set", map[string]any{"zone": "plan", "key": key, "limits": []any{map[string]any{"max": 9, "window": "1m"}}}, http.StatusOK, &control.OverrideChange{})
			if a = inspect("plan"); a.WouldPass == nil || !*a.WouldPass || len(a.Limits) != 1 || a.Limits[0].Remaining != 6 || a.NeedsRequest != nil {
				t.Errorf("plan under an override of limits: got %+v", a)
			}
			c.post("overrides/set", map[string]any{"zone": "plan", "key": key, "factor": 2}, http.StatusOK, &control.OverrideChange{})
			if a = inspect("plan"); a.WouldPass != nil || len(a.NeedsRequest.Limits) != 2 {
				t.Errorf("plan under an override with a factor: got %+v", a)
			}
			c.post("overrides/set", map[string]any{"zone": "plan", "key": key, "deny": true}, http.StatusOK, &control.OverrideChange{})
			if a = inspect("plan"); a.WouldPass == nil || *a.WouldPass || a.NeedsRequest != nil {
				t.Errorf("plan under an override that denies: got %+v", a)
			}
			c.post("overrides/delete", map[string]any{"zone": "plan", "key": key}, http.StatusOK, &control.OverrideChange{}) // memory outlives this test

			// The next request gets what the inspection with a request says.
			var said control.RequestInspection
			c.post("inspect", map[string]any{"request": map[string]any{"uri": "http://" + c.site + "/mixed", "remote": "127.0.0.1", "headers": map[string]string{"X-Key": key}}}, http.StatusOK, &said)
			if said.WouldPass == nil || *said.WouldPass || slices.ContainsFunc(said.Zones, func(z control.EvaluatedZone) bool { return len(z.Limits) != 3 }) {
				t.Errorf("with a request: got %+v", said)
			}
		})
	}
}
