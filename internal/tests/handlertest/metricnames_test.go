package handlertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
)

// The names, units and help texts of all that a configuration registers are as Prometheus wants them.
func TestMetricsAreWellNamed(t *testing.T) {
	registry := prometheus.NewRegistry()
	vectors := slices.Concat(metrics.All, load.NewCollector(nil).Vectors(), toptalkers.Collector{}.Vectors(), banbook.Collector{}.Vectors())
	for _, c := range vectors {
		registry.MustRegister(c)
		label(t, c)
	}
	_, ctx := New(t, OfZone(t, TwoAnHour, ``))
	if got, want := describedBy(registry), describedBy(ctx.GetMetricsRegistry()); !slices.Equal(got, want) {
		t.Errorf("got the metrics\n%s\nand a configuration registers\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
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

// describedBy returns what describes the metrics of this plugin in a registry, in order.
func describedBy(registry *prometheus.Registry) (all []string) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descriptions)
		close(descriptions)
	}()
	for d := range descriptions {
		if strings.Contains(d.String(), `"caddy_sliding_window_`) {
			all = append(all, d.String())
		}
	}
	slices.Sort(all)
	return all
}

// label makes a series of a metric until the end of the test.
func label(t *testing.T, c prometheus.Collector) {
	t.Helper()
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
