package handlertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	dto "github.com/prometheus/client_model/go"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestDecisionsByZoneAndOutcome(t *testing.T) {
	h, ctx := New(t, `{"zones":[
		{"name":"count_a","key":"{http.request.header.X-A}","empty_key":"deny","limits":[{"max":2,"window":"1h"},{"max":9,"window":"2h"}]},
		{"name":"count_b","limits":[{"max":3,"window":"1h"}]},
		{"name":"count_c","match":[{"path":["/never"]}],"limits":[{"max":3,"window":"1h"}]}
	]}`)
	seconds := Metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "memory")
	before := make(map[string][4]float64)
	for _, z := range h.(*slidingwindow.Handler).Zones {
		before[z.Name] = Outcomes(t, ctx, z.Name, [4]float64{})
	}
	for _, key := range []string{"x", "x", "x", "y", "z", ""} {
		Serve(t, Get("X-A", key), h)
	}
	for zone, want := range map[string][4]float64{
		"count_a": {3, 2, 0, 0}, // the third x, and the one without a key
		"count_b": {3, 1, 0, 0}, // z
		"count_c": {},
	} {
		if got := Outcomes(t, ctx, zone, before[zone]); got != want {
			t.Errorf("zone %s: got %v, want %v", zone, got, want)
		}
	}
	if got := Metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "memory") - seconds; got != 5 {
		t.Errorf("decision_seconds: got %v observations, want 5", got)
	}
}

func TestDecisionsWhileTheStoreIsAway(t *testing.T) {
	for word, want := range map[string][4]float64{
		"local": {2, 2, 0, 0},
		"allow": {0, 0, 4, 0},
		"deny":  {0, 0, 0, 4},
	} {
		t.Run(word, func(t *testing.T) {
			f, store := NewFake(t, Away)
			h, ctx := New(t, OfZone(t, TwoAnHour, `,"on_error":"`+word+`","store":`+store))
			before := Outcomes(t, ctx, ZoneName(t), [4]float64{})
			failed := Metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.Name, "reason", "away")
			local := Metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "local")
			for range 4 {
				Serve(t, Get(), h)
			}
			if got := Outcomes(t, ctx, ZoneName(t), before); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := Metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.Name, "reason", "away") - failed; got != 4 {
				t.Errorf("store_errors_total: got %v, want 4", got)
			}
			if got := Metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "local") - local; (got == 4) != (word == "local") {
				t.Errorf("decision_seconds of local: got %v observations", got)
			}
		})
	}
}

// Two handlers in one configuration count in one place, and a reload goes on
// counting there.
func TestMetricsOutliveReload(t *testing.T) {
	config := OfZone(t, TwoAnHour, ``)
	h, ctx := New(t, config)
	second, err := Another(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	before := Outcomes(t, ctx, ZoneName(t), [4]float64{})
	Serve(t, Get(), h)
	Serve(t, Get(), second)
	reloaded, newCtx := New(t, config)
	Serve(t, Get(), reloaded)
	for name, ctx := range map[string]caddy.Context{"old": ctx, "new": newCtx} {
		if got, want := Outcomes(t, ctx, ZoneName(t), before), [4]float64{2, 1, 0, 0}; got != want {
			t.Errorf("%s registry: got %v, want %v", name, got, want)
		}
	}
}

// Labels come from the configuration: what clients send is in none.
func TestNoKeyInLabels(t *testing.T) {
	const secret = "s3cret"
	_, store := NewFake(t, Decides(window.Decision{RetryAfter: time.Second}))
	h, ctx := New(t, OfZone(t, `"key":"{http.request.header.X-Key}","limits":[{"max":"{http.request.header.X-Key}","window":"1m"}],"fallback":{"max":1,"window":"1m"}`, `,"store":`+store))
	Serve(t, Get("X-Key", secret), h)
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if strings.Contains(label.GetValue(), secret) {
					t.Errorf("%s: label %s is %s", family.GetName(), label.GetName(), label.GetValue())
				}
				if strings.HasPrefix(family.GetName(), "caddy_sliding_window_") && !slices.Contains([]string{"zone", "outcome", "store", "node", "reason", "option", "direction", "version", "mode", "event"}, label.GetName()) {
					t.Errorf("%s: has a label %s", family.GetName(), label.GetName())
				}
			}
		}
	}
}

// TestBusy has a store that takes no more: on_error decides, and it is not taken
// for away.
func TestBusy(t *testing.T) {
	f, store := NewFake(t, func(context.Context, []window.Charge) ([]window.Decision, error) {
		return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrBusy)
	})
	h, ctx := New(t, OfZone(t, TwoAnHour, `,"on_error":"allow","store":`+store))
	before := Outcomes(t, ctx, ZoneName(t), [4]float64{})
	for range 10 {
		Serve(t, Get(), h)
	}
	if got, want := Outcomes(t, ctx, ZoneName(t), before), [4]float64{0, 0, 10, 0}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for reason, want := range map[string]float64{"away": 0, "busy": 10} {
		if got := Metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.Name, "reason", reason); got != want {
			t.Errorf("store_errors_total of reason %s: got %v, want %v", reason, got, want)
		}
	}
	if got := Metric(t, ctx, "caddy_sliding_window_breaker_open", "store", f.Name, "node", ""); got != 0 {
		t.Error("the breaker has opened")
	}
}

// usedUpTo returns how many observations of used_ratio of a zone are in the buckets up to a bound.
func usedUpTo(t *testing.T, ctx caddy.Context, zone string, bound float64) uint64 {
	t.Helper()
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			of := func(l *dto.LabelPair) bool { return l.GetName() == "zone" && l.GetValue() == zone }
			if family.GetName() != "caddy_sliding_window_used_ratio" || !slices.ContainsFunc(m.GetLabel(), of) {
				continue
			}
			for _, b := range m.GetHistogram().GetBucket() {
				if b.GetUpperBound() == bound {
					return b.GetCumulativeCount()
				}
			}
		}
	}
	t.Fatalf("no bucket up to %v", bound)
	return 0
}

// Requests that pass are near the limit from 80 % on, by the limit of which most is used. Units count
// as the requests wanted to spend them.
func TestNearLimitAndUnits(t *testing.T) {
	h, ctx := New(t, OfZone(t, `"cost":3,"limits":[{"max":15,"window":"1h"},{"max":300,"window":"2h"}]`, ``))
	for range 7 { // 3, 6, 9, 12, 15 of 15, and two denials
		Serve(t, Get(), h)
	}
	zone := ZoneName(t)
	for name, want := range map[string]float64{"allowed": 15, "denied": 6, "failed_open": 0, "failed_closed": 0} {
		if got := Metric(t, ctx, "caddy_sliding_window_units_total", "zone", zone, "outcome", name); got != want {
			t.Errorf("units %s: got %v, want %v", name, got, want)
		}
	}
	if got := Metric(t, ctx, "caddy_sliding_window_near_limit_total", "zone", zone); got != 2 {
		t.Errorf("near_limit_total: got %v, want 2: at 12 and 15 of 15", got)
	}
	for bound, want := range map[float64]uint64{0.25: 1, 0.5: 2, 0.8: 4, 0.9: 4, 1: 7} {
		if got := usedUpTo(t, ctx, zone, bound); got != want {
			t.Errorf("used_ratio up to %v: got %d, want %d", bound, got, want)
		}
	}
}
