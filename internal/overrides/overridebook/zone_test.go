package overridebook

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
)

// The gauge tells how many overrides do not fit a zone now: it falls when they are replaced or end, and goes with
// the zone.
func TestOverridesNotApplied(t *testing.T) {
	zones := []*Subscriber{newZone(t)}
	b := New(inMemory(t))
	b.Begin(zones, new(storagetest.Storage))
	want := func(what string, n float64) {
		t.Helper()
		got, ok := metricstest.Find(t, metricstest.Of(metrics.OverridesNotApplied), "caddy_sliding_window_overrides_not_applied", "store", b.name, "zone", t.Name())
		if !ok || got != n {
			t.Errorf("%s: %v overrides are not applied (%v), want %v", what, got, ok, n)
		}
	}
	huge := func(key string) overrides.Record { return overridestest.Multiplied(key, 1e6) }
	want("no overrides", 0)
	ending := huge("carl")
	ending.TTL = "1h"
	setRecords(t, b, huge("anna"), ending, overridestest.Denied("otto"))
	want("two factors that are too large", 2)
	b.mu.Lock()
	b.apply(time.Now().Add(2 * time.Hour))
	b.mu.Unlock()
	want("one has ended", 1)
	setRecords(t, b, overridestest.Denied("anna"))
	want("replaced", 0)
	setRecords(t, b, huge("anna"))
	want("set again", 1)
	setRecords(t, b)
	b.End(zones)
	b.mu.Lock()
	defer b.mu.Unlock()
	if metrics.OverridesNotApplied.DeleteLabelValues(b.name, t.Name()) {
		t.Error("the zone has ended, and still has a series")
	}
}

// No key takes a lease for a while after a change. Overrides that have gone leave nothing behind.
func TestQuiet(t *testing.T) {
	b, z := running(t)
	if !z.InForce.MayLease() {
		t.Error("no lease without overrides")
	}
	setRecords(t, b, limited("anna", "1m"))
	b.Tidy(time.Now().Add(Quiet - time.Second))
	if z.InForce.MayLease() {
		t.Error("a lease before the time is over")
	}
	b.Tidy(time.Now().Add(Quiet))
	if !z.InForce.MayLease() || z.InForce.Rule("anna") == nil {
		t.Error("no lease when the time is over, or no override")
	}
	setRecords(t, b)
	b.Tidy(time.Now().Add(Quiet))
	if z.InForce.now.Load() != nil {
		t.Error("overrides that have gone leave something behind")
	}
}

// A zone may have none.
func TestNothingInForce(t *testing.T) {
	for _, f := range []*InForce{nil, new(InForce)} {
		if f.Rule("anna") != nil || !f.MayLease() || f.LookBack("anna") != 0 || f.Misfits() != nil {
			t.Errorf("%v: overrides hold", f)
		}
	}
}

// A key is told which record it would have if that fitted the zone.
func TestMisfit(t *testing.T) {
	b, z := running(t)
	huge := overridestest.Multiplied("anna", 1e6)
	records := setRecords(t, b, huge, overridestest.Denied("otto"))
	m := b.Misfit(z, "anna")
	if m == nil || m.Err == nil || m.Factor != huge.Factor {
		t.Errorf("anna: got %+v of %+v", m, records)
	}
	for _, key := range []string{"otto", "carl"} {
		if m := b.Misfit(z, key); m != nil {
			t.Errorf("%s: got %+v", key, m)
		}
	}
}
