package handlertest

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Alerts that mean the same are the same zone, however they are written.
func TestAlertIsPlain(t *testing.T) {
	zone := func(alert string) string { return OfZone(t, TwoAnHour+`,"alert":{`+alert+`}`, "") }
	for plain, same := range map[string][]string{
		`{}`: {``, `"denied":"10%","over":"1m","min":"100"`, `"denied":"10.0%","over":"60s","min":"0100"`},
		`{"denied":"7.5%","over":"1m30s","min":5}`: {`"denied":"7.50%","over":"90s","min":"5"`, `"denied":"7.5%","over":"1m30s","min":5`},
	} {
		_, ctx := New(t, zone(same[0]))
		for _, alert := range same {
			if _, err := Another(ctx, zone(alert)); err != nil {
				t.Errorf("%s beside %s: %v", alert, same[0], err)
			}
		}
		if _, err := Another(ctx, zone(`"min":7`)); err == nil || !strings.Contains(err.Error(), "alert differ: "+plain+" and {") {
			t.Errorf("%s beside another alert: got %v, want %s refused", same[0], err, plain)
		}
	}
}

// What counts in the tally of a zone, by what the store decides: the summary tells it, with the denial at its end.
func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		decide     Decide // nil: the memory store
		zone, more string
		want       [4]int64 // allowed, denied, failed_open and failed_closed
	}{
		"allowed":       {Decides(window.Decision{Allowed: true, Limit: 1}), TwoAnHour, ``, [4]int64{3, 1, 0, 0}},
		"denied":        {Decides(window.Decision{Limit: 1}), TwoAnHour, ``, [4]int64{0, 4, 0, 0}},
		"failed_open":   {Away, TwoAnHour, `,"on_error":"allow"`, [4]int64{0, 1, 3, 0}},
		"failed_closed": {Away, TwoAnHour, `,"on_error":"deny"`, [4]int64{0, 1, 0, 3}},
		"keyless":       {nil, ofKey + `"empty_key":"deny",` + TwoAnHour, ``, [4]int64{0, 4, 0, 0}},
		"shadow":        {nil, `"enforce":"shadow","limits":[{"max":0,"window":"1h"}]`, ``, [4]int64{0, 1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *Fake
				if c.decide != nil {
					own, store := NewFake(t, c.decide)
					f, c.more = own, c.more+`,"store":`+store
				}
				h, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, OfZone(t, c.zone, c.more))
				Start(t, ctx)
				for range 3 {
					Serve(t, Get(), h)
				}
				if f != nil {
					f.Become(Decides(window.Decision{Limit: 1}))
				}
				time.Sleep(5 * time.Second) // until a store that was away is back
				setEnforce(t, ZoneName(t), "on", "1h")
				if w := Serve(t, Get(), h); w.Code != http.StatusTooManyRequests {
					t.Errorf("status %d at the end, want a denial", w.Code)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				lines := logs.FilterMessage("zone denied requests").All()
				if len(lines) != 1 {
					t.Fatalf("%d summaries, want 1", len(lines))
				}
				fields := lines[0].ContextMap()
				for i, outcome := range []string{"allowed", "denied", "failed_open", "failed_closed"} {
					if fields[outcome] != c.want[i] {
						t.Errorf("%s: got %v, want %d", outcome, fields[outcome], c.want[i])
					}
				}
			})
		})
	}
}

// An alert that fires is shown by the gauge and the status, and heard of once, across a reload that keeps
// the zone.
func TestAlertOutlivesReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := heard(t)
		config := OfZone(t, TwoAnHour+`,"alert":{"denied":"50%","over":"10s","min":"4"}`, ``)
		h, ctx := New(t, config)
		stop, began, zone := Start(t, ctx), time.Now(), ZoneName(t)
		want := func(what string, firing bool) {
			t.Helper()
			synctest.Wait()
			gauge, alerts := Metric(t, ctx, "caddy_sliding_window_alert", "zone", zone), status(t).Alerts
			if (gauge == 1) != firing || (len(alerts) == 1) != firing {
				t.Errorf("%s: the gauge is %v and the status %v, want firing %v", what, gauge, alerts, firing)
			}
		}
		want("before the first request", false)
		for range 4 {
			Serve(t, Get(), h)
		}
		_, reloaded := New(t, config)
		Start(t, reloaded)
		stop()
		want("before the watcher looks", false)
		time.Sleep(time.Second)
		want("of a configuration before the reload", true)
		shown := control.Alert{
			Zone: zone, Store: "memory", Since: began.Add(time.Second).UTC().Format(time.RFC3339),
			DeniedRatio: 0.5, Denied: 2, Requests: 4,
		}
		if got := status(t).Alerts; len(got) != 1 || got[0] != shown {
			t.Errorf("the status has %+v, want %+v", got, shown)
		}
		time.Sleep(20 * time.Second)
		want("without requests", false)
		all := take()
		if len(all) != 2 || all[0].Name != events.Alert || all[1].Name != events.Resolved {
			t.Fatalf("got the events %v, want an alert that is resolved", all)
		}
		data := map[string]any{
			"zone": shown.Zone, "store": shown.Store, "since": shown.Since,
			"denied_ratio": shown.DeniedRatio, "denied": shown.Denied, "requests": shown.Requests,
		}
		for name, value := range data {
			if all[0].Data[name] != value {
				t.Errorf("the event has %s %v, want %v", name, all[0].Data[name], value)
			}
		}
		if len(all[0].Data) != len(data) {
			t.Errorf("the event has the fields %v", all[0].Data)
		}
	})
}
