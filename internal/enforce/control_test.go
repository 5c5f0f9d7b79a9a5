package enforce

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
)

// How a zone is enforced is the same for all that hold it, until its time is over, which is an event once.
func TestControl(t *testing.T) {
	take, end := events.Capture()
	defer end()
	zone := engine.ZoneID{Store: engine.StoreID{Name: "memory"}, Zone: t.Name()}
	first, second := zonepool.Of(zone), zonepool.Of(zone)
	defer second.Release()
	c, other := Of(first), Of(second)
	if c.Current() != nil {
		t.Errorf("got %+v before anything is set", c.Current())
	}
	c.Set(Setting{Percent: 25, Until: time.Now().Add(time.Hour)})
	first.Release()
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

// A setting ends by the clock of the store, however wrong that of this process is.
func TestSettingEndsByTheStoresClock(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, off := range []time.Duration{0, 30 * time.Second, -30 * time.Second} {
		h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: t.Name() + off.String()}, Zone: "api"})
		defer h.Release()
		c := Of(h)
		learn := func(after time.Duration) { c.Clock().Learn(start.Add(after), uptime.Now(), uptime.Now()) }
		c.Clock().Wall = func() time.Time { return start.Add(off) }
		learn(0)
		c.Set(Setting{Until: c.Clock().Now().Add(12 * time.Second)})
		learn(11500 * time.Millisecond)
		if c.Current() == nil {
			t.Errorf("a clock that is off by %s: over after 11.5 s of 12", off)
		}
		learn(12500 * time.Millisecond)
		if c.Current() != nil {
			t.Errorf("a clock that is off by %s: not over after 12.5 s of 12", off)
		}
	}
}
