package events

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
)

// Only 64 events wait. What is beyond that is dropped, and counted by name.
func TestEventsAreBounded(t *testing.T) {
	take, end := Capture()
	defer end()
	dropped := func(name string) float64 {
		n, _ := metricstest.Find(t, metricstest.Of(metrics.EventsDroppedTotal), "caddy_sliding_window_events_dropped_total", "event", name)
		return n
	}
	back, memory := dropped(Back), dropped(Memory)
	for range 70 {
		Emit(Back, nil)
	}
	Emit(Memory, nil)
	if a, b := dropped(Back)-back, dropped(Memory)-memory; a != 6 || b != 1 {
		t.Errorf("%v and %v are dropped, want 6 and 1", a, b)
	}
	if n := len(take()); n != maxEvents {
		t.Errorf("%d events wait, want %d", n, maxEvents)
	}
}

// While no configuration runs, no event waits for the next one.
func TestEventsOfNobody(t *testing.T) {
	Emit(Memory, nil)
	if len(bus.waiting) != 0 {
		t.Errorf("%v waits", bus.waiting)
	}
}
