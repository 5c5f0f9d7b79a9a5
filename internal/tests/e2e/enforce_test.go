package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestAdminEnforce stops zones from denying as an operator does, and makes them deny again, on both
// stores; a zone that cannot be in shadow says why.
func TestAdminEnforce(t *testing.T) {
	server := redistest.Start(t)
	for name, store := range map[string]string{"memory": "memory", "redis": "redis redis://" + server.Addr} {
		t.Run(name, func(t *testing.T) {
			directives := `
			handle /own* {
				sliding_window {
					zone own {
						key {header.X-Key}
						limit 1 1h
					}
				}
				respond ok
			}
			handle /failed* {
				sliding_window {
					zone failed {
						key {header.X-Key}
						limit 1 1h
						count_if status 401
					}
				}
				respond no 401
			}`
			global := "sliding_window {\nstore " + store + "\n}"
			c := newControlled(t, global, directives)
			want := func(what, zone, key string, want int) {
				t.Helper()
				if status, _, _ := c.request(zone, key); status != want {
					t.Errorf("%s: status %d, want %d", what, status, want)
				}
			}
			want("first", "own", "a", 200)
			want("above the limit", "own", "a", 429)

			var answer control.Enforced
			c.post("enforce", map[string]any{"zone": "own", "mode": "shadow", "ttl": "1h", "reason": "test"}, http.StatusOK, &answer)
			if z := answer.Zones; len(z) != 1 || z[0].Zone != "own" || z[0].Enforce != "shadow" || z[0].Until == "" || z[0].Error != "" {
				t.Errorf("answer %+v", answer)
			}
			want("in shadow", "own", "a", 200)
			// Requests in shadow are counted beside the next handlers.
			caddyrun.Eventually(t, 20*time.Second, "inspect shows the request in shadow", func() bool {
				i := c.inspect("own", "a")
				return i.Enforce == "shadow" && !i.Passes()
			})
			if err := c.load(global, directives+"\nheader X-Reloaded yes"); err != nil {
				t.Fatal(err)
			}
			c.client.CloseIdleConnections() // those of the endpoint before
			want("in shadow after a reload", "own", "a", 200)

			c.post("enforce", map[string]any{"zone": "own", "mode": "config"}, http.StatusOK, &answer)
			want("as configured", "own", "a", 429)

			c.post("enforce", map[string]any{"all": true, "mode": "shadow", "ttl": "1s"}, http.StatusOK, &answer)
			if z := answer.Zones; len(z) != 2 || z[0].Zone != "failed" || z[0].Error != "" || z[0].Enforce != "exempt" || z[1].Enforce != "shadow" {
				t.Errorf("answer %+v", answer)
			}
			want("all in shadow", "own", "a", 200)
			caddyrun.Eventually(t, 20*time.Second, "it ends by itself", func() bool {
				status, _, _ := c.request("own", "a")
				return status == 429
			})
			c.post("enforce", map[string]any{"zone": "failed", "mode": "shadow", "ttl": "1h"}, http.StatusBadRequest, new(map[string]string))
			c.post("enforce", map[string]any{"zone": "unknown", "mode": "shadow", "ttl": "1h"}, http.StatusNotFound, new(map[string]string))
			c.post("enforce", map[string]any{"zone": "own", "mode": "off", "ttl": "1h"}, http.StatusBadRequest, new(map[string]string))
			c.post("enforce", map[string]any{"zone": "own", "mode": "shadow", "ttl": "0s"}, http.StatusBadRequest, new(map[string]string))
		})
	}
}
