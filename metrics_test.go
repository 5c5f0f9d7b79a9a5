package slidingwindow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// metric returns what a configuration's registry says of a counter, gauge or
// histogram (how many observations) with these labels, name after name.
func metric(t *testing.T, ctx caddy.Context, name string, labels ...string) float64 {
	t.Helper()
	value, ok := findMetric(t, ctx, name, labels...)
	if !ok {
		t.Fatalf("no metric %s%q", name, labels)
	}
	return value
}

// hasMetric reports whether there is a metric with exactly these labels.
func hasMetric(t *testing.T, ctx caddy.Context, name string, labels ...string) bool {
	t.Helper()
	_, ok := findMetric(t, ctx, name, labels...)
	return ok
}

// findMetric gathers one family if it can: the zones of all tests are in the others.
func findMetric(t *testing.T, ctx caddy.Context, name string, labels ...string) (value float64, ok bool) {
	t.Helper()
	for _, c := range collectors {
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			if strings.Contains(d.String(), fmt.Sprintf("fqName: %q", name)) {
				return metricstest.Find(t, metricstest.Of(c), name, labels...)
			}
		}
	}
	return metricstest.Find(t, ctx.GetMetricsRegistry(), name, labels...)
}

// outcomes returns the decisions on a zone beyond those before: allowed, denied,
// failed_open and failed_closed.
func outcomes(t *testing.T, ctx caddy.Context, zone string, before [4]float64) [4]float64 {
	t.Helper()
	var n [4]float64
	for i, outcome := range []string{"allowed", "denied", "failed_open", "failed_closed"} {
		n[i] = metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", zone, "outcome", outcome) - before[i]
	}
	return n
}

// Outcomes is outcomes, for tests outside of the package.
var Outcomes = outcomes

func TestDecisionsByZoneAndOutcome(t *testing.T) {
	h, ctx := newHandler(t, `{"zones":[
		{"name":"count_a","key":"{http.request.header.X-A}","empty_key":"deny","limits":[{"max":2,"window":"1h"},{"max":9,"window":"2h"}]},
		{"name":"count_b","limits":[{"max":3,"window":"1h"}]},
		{"name":"count_c","match":[{"path":["/never"]}],"limits":[{"max":3,"window":"1h"}]}
	]}`)
	seconds := metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "memory")
	before := make(map[string][4]float64)
	for _, z := range h.Zones {
		before[z.Name] = outcomes(t, ctx, z.Name, [4]float64{})
	}
	for _, key := range []string{"x", "x", "x", "y", "z", ""} {
		serve(t, get("X-A", key), h)
	}
	for zone, want := range map[string][4]float64{
		"count_a": {3, 2, 0, 0}, // the third x, and the one without a key
		"count_b": {3, 1, 0, 0}, // z
		"count_c": {},
	} {
		if got := outcomes(t, ctx, zone, before[zone]); got != want {
			t.Errorf("zone %s: got %v, want %v", zone, got, want)
		}
	}
	if got := metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "memory") - seconds; got != 5 {
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
			f, store := newFake(t, away)
			h, ctx := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"`+word+`","store":`+store))
			before := outcomes(t, ctx, zoneName(t), [4]float64{})
			failed := metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.name, "reason", "away")
			local := metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "local")
			for range 4 {
				serve(t, get(), h)
			}
			if got := outcomes(t, ctx, zoneName(t), before); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.name, "reason", "away") - failed; got != 4 {
				t.Errorf("store_errors_total: got %v, want 4", got)
			}
			if got := metric(t, ctx, "caddy_sliding_window_decision_seconds", "store", "local") - local; (got == 4) != (word == "local") {
				t.Errorf("decision_seconds of local: got %v observations", got)
			}
		})
	}
}

// Two handlers in one configuration count in one place, and a reload goes on
// counting there.
func TestMetricsOutliveReload(t *testing.T) {
	config := zoneHandler(t, twoAnHour, ``)
	h, ctx := newHandler(t, config)
	second, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(config))
	if err != nil {
		t.Fatal(err)
	}
	before := outcomes(t, ctx, zoneName(t), [4]float64{})
	serve(t, get(), h)
	serve(t, get(), second.(*Handler))
	reloaded, newCtx := newHandler(t, config)
	serve(t, get(), reloaded)
	for name, ctx := range map[string]caddy.Context{"old": ctx, "new": newCtx} {
		if got, want := outcomes(t, ctx, zoneName(t), before), [4]float64{2, 1, 0, 0}; got != want {
			t.Errorf("%s registry: got %v, want %v", name, got, want)
		}
	}
}

// Labels come from the configuration: what clients send is in none.
func TestNoKeyInLabels(t *testing.T) {
	const secret = "s3cret"
	_, store := newFake(t, decides(window.Decision{RetryAfter: time.Second}))
	h, ctx := newHandler(t, zoneHandler(t, `"key":"{http.request.header.X-Key}","limits":[{"max":"{http.request.header.X-Key}","window":"1m"}],"fallback":{"max":1,"window":"1m"}`, `,"store":`+store))
	serve(t, get("X-Key", secret), h)
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

// Names, units and help texts are as Prometheus wants them.
func TestMetricsAreWellNamed(t *testing.T) {
	registry := prometheus.NewRegistry()
	var vectors []prometheus.Collector
	for _, c := range collectors {
		switch c := c.(type) {
		case interface{ Vectors() []prometheus.Collector }:
			vectors = append(vectors, c.Vectors()...)
		default:
			vectors = append(vectors, c)
		}
	}
	for _, c := range vectors {
		registry.MustRegister(c)
		label(t, c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(vectors) {
		t.Errorf("%d of %d metrics have a series", len(families), len(vectors))
	}
	for _, family := range families {
		family.Metric = family.Metric[:1] // other tests have made many, and the lint compares each with each
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// label makes a series of a metric until the end of the test.
func label(t *testing.T, c prometheus.Collector) {
	vec, ok := c.(interface{ DeleteLabelValues(...string) bool })
	if !ok {
		t.Fatalf("%T has no labels", c)
	}
	for values := []string{"lint"}; len(values) < 9; values = append(values, "lint") {
		var err error
		switch c := c.(type) {
		case *prometheus.CounterVec:
			_, err = c.GetMetricWithLabelValues(values...)
		case *prometheus.GaugeVec:
			_, err = c.GetMetricWithLabelValues(values...)
		case *prometheus.HistogramVec:
			_, err = c.GetMetricWithLabelValues(values...)
		}
		if err == nil {
			t.Cleanup(func() { vec.DeleteLabelValues(values...) })
			return
		}
	}
}

// TestBusy has a store that takes no more: on_error decides, and it is not taken
// for away.
func TestBusy(t *testing.T) {
	f, store := newFake(t, func(context.Context, []window.Charge) ([]window.Decision, error) {
		return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrBusy)
	})
	h, ctx := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"allow","store":`+store))
	before := outcomes(t, ctx, zoneName(t), [4]float64{})
	for range 10 {
		serve(t, get(), h)
	}
	if got, want := outcomes(t, ctx, zoneName(t), before), [4]float64{0, 0, 10, 0}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for reason, want := range map[string]float64{"away": 0, "busy": 10} {
		if got := metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.name, "reason", reason); got != want {
			t.Errorf("store_errors_total of reason %s: got %v, want %v", reason, got, want)
		}
	}
	if got := metric(t, ctx, "caddy_sliding_window_breaker_open", "store", f.name, "node", ""); got != 0 {
		t.Error("the breaker has opened")
	}
}
