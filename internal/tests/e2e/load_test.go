package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/loadtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// Over HTTP, with each store: under load a zone lets less pass at once, says so, and lets more pass as
// soon as the load is over, whatever was denied and remembered before.
func TestLoadOverHTTP(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			cpu := 0.4
			step := loadtest.StandIn(t, func() (float64, error) { return cpu, nil }, func() (float64, error) { return 0.1, nil })
			global := "sliding_window {\nstore memory\n}"
			if store == "redis" {
				global = "sliding_window {\nstore redis redis://" + redistest.Start(t).Addr + " {\ntimeout 5s\n}\n}"
			}
			zone := func(limit int) string {
				return fmt.Sprintf("sliding_window {\nzone everybody {\nkey all\nlimit %d 1m\nlimit 100000 1h\nload cpu 70%% 95%% {\nrecover 5s\n}\n}\n}\nrespond ok", limit)
			}
			c := newControlled(t, global, zone(100))
			reload := func(limit int) {
				t.Helper()
				if err := c.load(global, zone(limit)); err != nil {
					t.Fatal(err)
				}
				c.client.CloseIdleConnections() // which the servers before close
			}
			ask := func(status int, kind string) {
				t.Helper()
				resp, err := c.client.Get("http://" + c.site + "/")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != status || !strings.Contains(string(body), kind) {
					t.Fatalf("got %d %s, want %d and %s", resp.StatusCode, body, status, kind)
				}
			}
			inspect := func(max int64, source string) {
				t.Helper()
				var i control.Inspection
				c.post("inspect", map[string]any{"zone": "everybody"}, http.StatusOK, &i)
				if l := i.Limits[0]; l.Max != max || l.Source != source || i.Limits[1].Source != "config" {
					t.Errorf("inspect: %+v, want %d by %s", i.Limits, max, source)
				}
			}
			step(21)
			inspect(100, "config")
			for range 40 {
				ask(200, "ok")
			}
			cpu = 1
			step(3)
			inspect(30, "load")
			for range 3 {
				ask(429, "#temporary-reduced-capacity")
			}
			// A reload keeps the factor, and another limit follows it.
			reload(200)
			inspect(60, "load")
			var status control.Status
			_, text := c.ask(http.MethodGet, "/sliding_window/status", "", "")
			if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.Loads) != 1 || status.Loads[0].Factor != 0.3 || status.Loads[0].Signals["cpu"] != 1 {
				t.Errorf("status: %s, %v", text, err)
			}
			reload(100)
			ask(429, "#temporary-reduced-capacity")
			cpu = 0.4
			step(20)
			ask(200, "ok")
			inspect(100, "config")
			for range 59 {
				ask(200, "ok")
			}
			ask(429, "#quota-exceeded")
		})
	}
}
