package slidingwindow

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

// An order that could not be sent holds here, and is sent when the store is back, unless that has got a later one. What is no
// order, is over or does not fit the zone changes nothing, and neither does one that was heard before.
func TestEnforceOrders(t *testing.T) {
	server := redistest.Start(t)
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, `,"store":{"module":"redis","address":["`+server.Addr+`"],"timeout":"2s"}`))
	b := runHandler(t, h, new(mapStorage))
	zone, z := zoneName(t), h.Zones[0]
	running := []*runningZone{h.newRunningZone(z)}
	inHash := func() string {
		return server.Client(t).HGet(t.Context(), "sw:{enforce}", zone).Val()
	}
	order := func(mode string, at, until time.Duration) string {
		now := time.Now().UTC()
		return fmt.Sprintf(`{"mode":%q,"until":%q,"at":%q}`, mode, now.Add(until).Format(time.RFC3339Nano), now.Add(at).Format(time.RFC3339Nano))
	}
	want := func(what, word string) {
		t.Helper()
		if got, _ := z.enforcedNow(); got != word {
			t.Errorf("%s: enforced %s, want %s", what, got, word)
		}
	}
	hear := func(text string) {
		t.Helper()
		if err := server.Client(t).HSet(t.Context(), "sw:{enforce}", zone, text).Err(); err != nil {
			t.Fatal(err)
		}
		b.look(t.Context())
	}

	server.Kill()
	own := enforce.NewOrder("shadow", time.Now().Add(time.Hour), "")
	if err := z.setEnforce("shadow", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	z.control.sync.Order(own)
	if unsent := sendOrder(t.Context(), running, own); len(unsent) != 1 || unsent[0].zone != zone {
		t.Errorf("away: unsent %v", unsent)
	}
	server.Restart(t)
	b.look(t.Context())
	if got := inHash(); got != own {
		t.Errorf("when Redis is back it has %q, want %q", got, own)
	}
	want("its own order", "shadow")

	hear("no order")
	want("no order", "shadow")
	hear(order("on", 0, -time.Second))
	want("an order that is over", "shadow")
	hear(order("wrong", 0, time.Hour))
	want("an order that does not fit", "shadow")
	half := order("50%", 0, 365*24*time.Hour)
	hear(half)
	want("an order", "50%")
	if set := z.control.current(); set == nil || time.Until(set.until) > enforce.Longest {
		t.Errorf("it lasts too long: %+v", set)
	}
	if err := z.setEnforce("shadow", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	hear(half)
	want("the same order again", "shadow")
	server.Client(t).Del(t.Context(), "sw:{enforce}")
	b.look(t.Context())
	want("an order that has gone", "shadow")

	z.control.sync.Order(own)
	hear(order("config", time.Minute, time.Hour))
	want("a later order", "on")
	b.look(t.Context())
	if got := inHash(); got == own {
		t.Error("a later order was overwritten")
	}
	z.control.sync.Order(enforce.NewOrder("shadow", time.Now().Add(time.Hour), ""))
	hear(order("25%", -time.Minute, time.Hour))
	want("an earlier order", "on")
	if got := inHash(); enforce.ParseOrder(got).Mode != "shadow" {
		t.Errorf("an earlier order was left: %s", got)
	}
}
