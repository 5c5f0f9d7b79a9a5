// Package metricstest reads metrics in tests.
package metricstest

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Find returns the value of a metric with exactly these labels, each a name and a value, and whether there is one.
// That of a histogram is the number of its samples.
func Find(t testing.TB, of prometheus.Gatherer, name string, labels ...string) (value float64, ok bool) {
	t.Helper()
	families, err := of.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			got := make(map[string]string)
			for _, label := range m.GetLabel() {
				got[label.GetName()] = label.GetValue()
			}
			if maps.Equal(got, want) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
			}
		}
	}
	return 0, false
}

// Of returns a Gatherer of only the given collectors.
func Of(collectors ...prometheus.Collector) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	return registry
}
