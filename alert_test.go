package slidingwindow

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/slidingwindow/caddy-sliding-window/internal/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestAlertIsRefused(t *testing.T) {
	for want, a := range map[string]*Alert{
		``: {Denied: "0.5%", Over: "1h", Min: "1"},
		`alert: denied "ten" is not a percentage; write one, such as 10%`:         {Denied: "ten"},
		`alert: denied 0%: must be above 0% and at most 100%`:                     {Denied: "0%"},
		`alert: denied 101%: must be above 0% and at most 100%`:                   {Denied: "101%"},
		`alert: denied NaN%: must be above 0% and at most 100%`:                   {Denied: "NaN%"},
		`alert: denied 0.1: the sign is missing; write a percentage, such as 10%`: {Denied: "0.1"},
		`alert: over 9s: must be from 10s to 1h`:                                  {Over: "9s"},
		`alert: over 2h: must be from 10s to 1h`:                                  {Over: "2h"},
		`alert: over: "soon" is not a duration`:                                   {Over: "soon"},
		`alert: min 0: must be 1 or more`:                                         {Min: "0"},
		`alert: min "many" is not a whole number`:                                 {Min: "many"},
	} {
		_, err := a.rule()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want && (want == "" || len(got) < len(want) || got[:len(want)] != want) {
			t.Errorf("%+v: got %q, want %q", *a, got, want)
		}
	}
}

// Alerts that mean the same are the same zone, however they are written.
func TestAlertIsPlain(t *testing.T) {
	for _, a := range []Alert{{}, {Denied: "10%", Over: "1m", Min: "100"}, {Denied: "10.0%", Over: "60s", Min: "0100"}} {
		if got := *a.plain(); got != (Alert{}) {
			t.Errorf("%+v is %+v, want the defaults", a, got)
		}
	}
	if got, want := *(&Alert{"7.50%", "90s", "5"}).plain(), (Alert{"7.5%", "1m30s", "5"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// usedUpTo returns how many observations of used_ratio of a zone are in the buckets up to a bound.
func usedUpTo(t *testing.T, h *Handler, bound float64) uint64 {
	t.Helper()
	var m dto.Metric
	if err := h.Zones[0].seen.Used.(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	for _, b := range m.GetHistogram().GetBucket() {
		if b.GetUpperBound() == bound {
			return b.GetCumulativeCount()
		}
	}
	t.Fatalf("no bucket up to %v", bound)
	return 0
}

// Requests that pass are near the limit from 80 % on, by the limit of which most is used. Units count
// as the requests wanted to spend them.
func TestNearLimitAndUnits(t *testing.T) {
	h, ctx := newHandler(t, handlertest.OfZone(t, `"cost":3,"limits":[{"max":15,"window":"1h"},{"max":300,"window":"2h"}]`, ``))
	for range 7 { // 3, 6, 9, 12, 15 of 15, and two denials
		handlertest.Serve(t, handlertest.Get(), h)
	}
	zone := handlertest.ZoneName(t)
	for name, want := range map[string]float64{"allowed": 15, "denied": 6, "failed_open": 0, "failed_closed": 0} {
		if got := metric(t, ctx, "caddy_sliding_window_units_total", "zone", zone, "outcome", name); got != want {
			t.Errorf("units %s: got %v, want %v", name, got, want)
		}
	}
	if got := metric(t, ctx, "caddy_sliding_window_near_limit_total", "zone", zone); got != 2 {
		t.Errorf("near_limit_total: got %v, want 2: at 12 and 15 of 15", got)
	}
	for bound, want := range map[float64]uint64{0.25: 1, 0.5: 2, 0.8: 4, 0.9: 4, 1: 7} {
		if got := usedUpTo(t, h, bound); got != want {
			t.Errorf("used_ratio up to %v: got %d, want %d", bound, got, want)
		}
	}
}

// What counts in the tally of a zone, by what the store decides.
func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(context.Context, []window.Charge) ([]window.Decision, error)
		more   string
		want   alert.Counted
	}{
		"allowed":       {handlertest.Decides(window.Decision{Allowed: true, Limit: 1}), ``, alert.Counted{Allowed: 3}},
		"denied":        {handlertest.Decides(window.Decision{Limit: 1}), ``, alert.Counted{Denied: 3}},
		"failed_open":   {handlertest.Away, `,"on_error":"allow"`, alert.Counted{FailedOpen: 3}},
		"failed_closed": {handlertest.Away, `,"on_error":"deny"`, alert.Counted{FailedClosed: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			_, store := handlertest.NewFake(t, c.decide)
			h, _ := newHandler(t, handlertest.OfZone(t, handlertest.TwoAnHour, c.more+`,"store":`+store))
			for range 3 {
				handlertest.Serve(t, handlertest.Get(), h)
			}
			if got := h.Zones[0].seen.Tally.Read(); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	t.Run("keyless", func(t *testing.T) {
		h, _ := newHandler(t, handlertest.OfZone(t, `"key":"{http.request.header.X-Key}","empty_key":"deny",`+handlertest.TwoAnHour, ``))
		handlertest.Serve(t, handlertest.Get(), h)
		if got, want := h.Zones[0].seen.Tally.Read(), (alert.Counted{Denied: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("shadow", func(t *testing.T) {
		h, _ := newHandler(t, handlertest.OfZone(t, `"enforce":"shadow",`+handlertest.TwoAnHour, ``))
		for range 3 {
			handlertest.Serve(t, handlertest.Get(), h)
		}
		if got := h.Zones[0].seen.Tally.Read(); got != (alert.Counted{}) {
			t.Errorf("got %+v, want nothing: no alert counts what is not denied", got)
		}
	})
}

// heard has events of the test wait for heard's result, which returns them.
func heard(t *testing.T) (take func() []events.Event) {
	_ = caddy.Stop() // what another test has left running would take events
	take, end := events.Hear()
	t.Cleanup(end)
	return take
}

// An alert that fires is shown by the gauge and the status, and heard of once, across a reload that keeps
// the zone.
func TestAlertOutlivesReload(t *testing.T) {
	take := heard(t)
	config := handlertest.OfZone(t, handlertest.TwoAnHour+`,"alert":{"denied":"50%","over":"10s","min":"4"}`, ``)
	h, ctx := newHandler(t, config)
	own, rule, zone := h.Zones[0].seen.Tally, h.Zones[0].alerting, handlertest.ZoneName(t)
	gauge := func() float64 { return metric(t, ctx, "caddy_sliding_window_alert", "zone", zone) }
	now := own.Born
	tick := func(tally *alert.Tally, seconds int) {
		now = now.Add(time.Duration(seconds) * time.Second)
		tally.Watch(rule, now)
	}
	tick(own, 0)
	if gauge() != 0 {
		t.Errorf("the gauge is %v before the first request", gauge())
	}
	for range 4 {
		handlertest.Serve(t, handlertest.Get(), h)
	}
	tick(own, 1)
	reloaded, _ := newHandler(t, config)
	if reloaded.Zones[0].seen.Tally != own {
		t.Fatal("the reload has a tally of its own")
	}
	tick(reloaded.Zones[0].seen.Tally, 1)
	if gauge() != 1 || own.Fired.Load() == nil {
		t.Errorf("the gauge is %v and the status %v, want an alert", gauge(), own.Fired.Load())
	}
	tick(own, 20)
	if gauge() != 0 || own.Fired.Load() != nil {
		t.Errorf("the gauge is %v and the status %v, want no alert", gauge(), own.Fired.Load())
	}
	all := take()
	if len(all) != 2 || all[0].Name != events.Alert || all[1].Name != events.Resolved {
		t.Fatalf("got the events %v, want an alert that is resolved", all)
	}
	want := map[string]any{
		"zone": zone, "store": "memory", "since": own.Born.Add(time.Second).UTC().Format(time.RFC3339),
		"denied_ratio": 0.5, "denied": int64(2), "requests": int64(4),
	}
	for name, value := range want {
		if all[0].Data[name] != value {
			t.Errorf("the event has %s %v, want %v", name, all[0].Data[name], value)
		}
	}
	if len(all[0].Data) != len(want) {
		t.Errorf("the event has the fields %v", all[0].Data)
	}
}

// How a zone is enforced is an event when its time is over, once.
func TestEnforcedEventAtItsEnd(t *testing.T) {
	take := heard(t)
	h, _ := newHandler(t, handlertest.OfZone(t, handlertest.TwoAnHour, ``))
	z := h.Zones[0]
	if err := z.setEnforce(control.EnforceShadow, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	z.control.Current()
	z.control.Current()
	all := take()
	if len(all) != 1 || all[0].Name != events.Enforce || all[0].Data["enforce"] != "config" || all[0].Data["zone"] != z.Name {
		t.Errorf("got the events %v, want one that the configuration holds again", all)
	}
}

// A set of an override is an event, which holds no key.
func TestOverrideEvent(t *testing.T) {
	take := heard(t)
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":2,"window":"1h"}]`, ""))
	runHandler(t, h, new(storagetest.Storage))
	own := []*running.Zone{h.newRunningZone(h.Zones[0])}
	running.Zones.Add(own)
	defer running.Zones.Remove(own)
	body := `{"zone":"` + handlertest.ZoneName(t) + `","key":"anna","deny":true,"until":"2099-01-01T00:00:00Z","reason":"abuse"}`
	if answer := handlertest.Admin(t, http.MethodPost, "overrides/set", body); !strings.Contains(answer, `"version"`) {
		t.Fatal(answer)
	}
	all := take()
	if len(all) != 1 || all[0].Name != events.Override || all[0].Data["zone"] != handlertest.ZoneName(t) || all[0].Data["change"] != "set" || all[0].Data["reason"] != "abuse" {
		t.Errorf("events %v, want one of the override", all)
	}
	if text := fmt.Sprint(all); strings.Contains(text, "anna") {
		t.Errorf("an event holds the key: %s", text)
	}
}
