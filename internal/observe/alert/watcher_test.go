package alert

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
)

// The watcher looks at the zones at once and then each second, from the first begin to the last end.
func TestWatcherLooksEachSecond(t *testing.T) {
	h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: "memory"}, Zone: t.Name()})
	defer h.Release()
	own, rule := countersOf(h), &Rule{0.1, 10 * time.Second, 1}
	synctest.Test(t, func(t *testing.T) {
		own.Born, own.summary.since = time.Now(), time.Now() // of the clock of the test
		w := NewWatcher(func(now time.Time) { own.Watch(rule, now) })
		w.Begin()
		w.Begin()
		synctest.Wait()
		own.denied.Add(1)
		synctest.Wait()
		if own.Fired.Load() != nil {
			t.Error("it looks again at once")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if a := own.Fired.Load(); a == nil || a.Zone != t.Name() || a.Denied != 1 {
			t.Errorf("alert %v after a second, want one", a)
		}
		w.End()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if a := own.Fired.Load(); a == nil {
			t.Errorf("alert %v while the denial is within the time", a)
		}
		if own.summary.told.Denied != 1 {
			t.Errorf("the summary after ten seconds has %+v", own.summary.told)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if a := own.Fired.Load(); a != nil {
			t.Errorf("alert %v after its time, want none", a)
		}
		own.denied.Add(1)
		w.End()
		time.Sleep(time.Minute)
		if a := own.Fired.Load(); a != nil {
			t.Errorf("alert %v after the last end", a)
		}
	})
}

// An alert of a zone that is in no configuration any more is over.
func TestAlertOfZoneThatIsGone(t *testing.T) {
	h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: "nowhere"}, Zone: t.Name()})
	own, rule := countersOf(h), &Rule{0.1, time.Minute, 1}
	own.denied.Add(10)
	own.Watch(rule, own.Born.Add(time.Second))
	gauge := func() float64 {
		value, _ := metricstest.Find(t, metricstest.Of(metrics.AlertFiring), "caddy_sliding_window_alert", "zone", t.Name())
		return value
	}
	if gauge() != 1 {
		t.Fatalf("the gauge is %v, want 1", gauge())
	}
	h.Release()
	own.denied.Add(10)
	own.Watch(rule, own.Born.Add(2*time.Second)) // by a watcher that has it still
	if gauge() != 0 {
		t.Errorf("the gauge is %v, want 0", gauge())
	}
}
