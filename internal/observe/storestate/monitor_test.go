package storestate

import (
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
)

func TestDangersAreToldOnce(t *testing.T) {
	take, end := events.Capture()
	defer end()
	w := &Monitor{name: "dangers"}
	for i, step := range []struct {
		memory       *engine.ServerMemory
		evicts, high bool
	}{
		{nil, false, false},
		{&engine.ServerMemory{Used: 100, Policy: "allkeys-lru"}, false, false}, // without a maximum nothing is dropped
		{&engine.ServerMemory{Used: 100, Max: 1000, Policy: "noeviction"}, false, false},
		{&engine.ServerMemory{Used: 100, Max: 1000, Policy: "volatile-ttl"}, true, false},
		{&engine.ServerMemory{Used: 800, Max: 1000, Policy: "volatile-ttl"}, true, true},
		{&engine.ServerMemory{Used: 750, Max: 1000, Policy: "noeviction"}, false, true},
		{&engine.ServerMemory{Used: 699, Max: 1000, Policy: "noeviction"}, false, false},
	} {
		w.note(engine.Description{Memory: step.memory})
		if shown := hasServerMetric(t, "caddy_sliding_window_store_memory_bytes", "store", "dangers"); shown != (step.memory != nil) {
			t.Errorf("step %d: the metric is there: %t", i, shown)
		}
		if w.evicts != step.evicts || w.high != step.high {
			t.Errorf("step %d: evicts %t, high %t, want %t, %t", i, w.evicts, w.high, step.evicts, step.high)
		}
	}
	all := take()
	if len(all) != 1 || all[0].Name != events.Memory || all[0].Data["memory"] != int64(800) || all[0].Data["maxmemory_policy"] != "volatile-ttl" {
		t.Errorf("got the events %v, want one of 800 bytes", all)
	}
}

// The metric of the server has one series for a store, of the server that was seen last, and none when nothing uses
// the store any more. A monitor that ends takes away what another one of the store shows until its next look.
func TestServerIsShown(t *testing.T) {
	labels := func(version string) []string {
		return []string{"store", "shown", "version", version, "mode", "standalone"}
	}
	want := func(what string, versions ...string) {
		t.Helper()
		for _, version := range []string{"redis 7.0", "redis 8.0\uFFFD"} {
			if got, want := hasServerMetric(t, "caddy_sliding_window_store_info", labels(version)...), slices.Contains(versions, version); got != want {
				t.Errorf("%s: %s is shown: %t", what, version, got)
			}
		}
	}
	a, b := &Monitor{name: "shown"}, &Monitor{name: "shown"}
	a.note(engine.Description{Version: "redis 7.0", Mode: "standalone"})
	want("at start", "redis 7.0")
	a.note(engine.Description{Version: "redis 8.0\xff", Mode: "standalone"})
	want("after an update", "redis 8.0\uFFFD")
	b.note(engine.Description{Version: "redis 8.0\xff", Mode: "standalone"})
	a.End()
	b.note(engine.Description{Version: "redis 8.0\xff", Mode: "standalone"})
	want("after a reload", "redis 8.0\uFFFD")
	b.End()
	want("at the end")
}

// hasServerMetric reports whether there is a metric of a server with exactly these labels.
func hasServerMetric(t *testing.T, name string, labels ...string) bool {
	_, ok := metricstest.Find(t, metricstest.Of(metrics.StoreMemory, metrics.StoreInfo), name, labels...)
	return ok
}
