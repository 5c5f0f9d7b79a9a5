package enforce

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
)

// How a zone is enforced is the same for all that hold it, until its time is over, which is an event once.
func TestControl(t *testing.T) {
	take, end := events.Hear()
	defer end()
	c, other := Acquire(engine.StoreID{Name: "memory"}, t.Name()), Acquire(engine.StoreID{Name: "memory"}, t.Name())
	defer other.Release()
	if c.Current() != nil {
		t.Errorf("got %+v before anything is set", c.Current())
	}
	c.Set(Setting{Percent: 25, Until: time.Now().Add(time.Hour)})
	c.Release()
	if set := other.Current(); set == nil || set.Percent != 25 {
		t.Errorf("got %+v, want 25%%", set)
	}
	c.Reset()
	if c.Current() != nil {
		t.Errorf("got %+v after it was reset", c.Current())
	}
	c.Set(Setting{Percent: None, Until: time.Now().Add(-time.Second)})
	for range 2 {
		if c.Current() != nil {
			t.Errorf("got %+v after its time", c.Current())
		}
	}
	all := take()
	if len(all) != 1 || all[0].Name != events.Enforce || all[0].Data["enforce"] != "config" || all[0].Data["zone"] != t.Name() {
		t.Errorf("got the events %v, want one that the configuration holds again", all)
	}
}

// An order holds until its end, and for Longest at most.
func TestHoldsFrom(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		order Order
		until time.Time // zero: it does not hold
	}{
		{Order{Mode: "on", Until: now.Add(time.Hour)}, now.Add(time.Hour)},
		{Order{Mode: "on", Until: now.Add(2 * Longest)}, now.Add(Longest)},
		{Order{Mode: "on", Until: now}, time.Time{}},
		{Order{Until: now.Add(time.Hour)}, time.Time{}},
	} {
		if got, holds := c.order.HoldsFrom(now); holds == c.until.IsZero() || holds && !got.Until.Equal(c.until) {
			t.Errorf("%+v: got %+v, %v, want until %s", c.order, got, holds, c.until)
		}
	}
}
