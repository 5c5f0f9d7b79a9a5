package slidingwindow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics/metricstest"
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
