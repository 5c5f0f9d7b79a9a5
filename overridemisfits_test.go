package slidingwindow

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// The gauge tells how many overrides do not fit a zone now: it falls when they are replaced or end, and goes with
// the zone.
func TestOverridesNotApplied(t *testing.T) {
	h, ctx := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":1000000000,"window":"1h"}]`, ""))
	zones := []*runningZone{h.newRunningZone(h.Zones[0])}
	b := h.guard.overrides
	b.begin(zones, new(mapStorage))
	want := func(what string, n float64) {
		t.Helper()
		if got := metric(t, ctx, "caddy_sliding_window_overrides_not_applied", "store", b.name, "zone", zoneName(t)); got != n {
			t.Errorf("%s: %v overrides are not applied, want %v", what, got, n)
		}
	}
	huge := func(key string) overrides.Record {
		r := keyed(key)
		r.Factor = 1e6
		return r
	}
	want("no overrides", 0)
	ending := huge("carl")
	ending.TTL = "1h"
	setRecords(t, b, huge("anna"), ending, denied("otto"))
	want("two factors that are too large", 2)
	b.mu.Lock()
	b.apply(time.Now().Add(2 * time.Hour))
	b.mu.Unlock()
	want("one has ended", 1)
	setRecords(t, b, denied("anna"))
	want("replaced", 0)
	setRecords(t, b, huge("anna"))
	want("set again", 1)
	setRecords(t, b)
	b.end(zones)
	b.mu.Lock()
	defer b.mu.Unlock()
	if metrics.OverridesNotApplied.DeleteLabelValues(b.name, zoneName(t)) {
		t.Error("the zone has ended, and still has a series")
	}
}
