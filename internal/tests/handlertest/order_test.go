package handlertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// An order that could not be sent holds here, and is sent when the store is back, unless that has got a later one. What is no
// order changes nothing, and neither does an earlier one. After one that is over, or does not fit the zone, what is configured
// holds.
func TestEnforceOrders(t *testing.T) {
	server := redistest.Start(t)
	config := OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, `,"store":{"module":"redis","address":["`+server.Addr+`"],"timeout":"2s"}`)
	_, ctx := New(t, config)
	zone, stop := ZoneName(t), Start(t, ctx)
	look := func() { // as the app does when it starts
		t.Helper()
		stop()
		_, ctx := New(t, config)
		stop = Start(t, ctx)
	}
	inHash := func() string {
		return server.Client(t).HGet(t.Context(), "sw:{enforce}", zone).Val()
	}
	order := func(mode string, at, until time.Duration) string {
		now := time.Now().UTC()
		return fmt.Sprintf(`{"mode":%q,"until":%q,"at":%q}`, mode, now.Add(until).Format(time.RFC3339Nano), now.Add(at).Format(time.RFC3339Nano))
	}
	now := func() control.ZoneInfo { return told[control.Zones](t, http.MethodGet, "zones", "").Zones[0] }
	want := func(what, word string) {
		t.Helper()
		if z := now(); z.Name != zone || z.Enforce != word {
			t.Errorf("%s: zone %s is enforced %s, want %s", what, z.Name, z.Enforce, word)
		}
	}
	hear := func(text string) {
		t.Helper()
		if err := server.Client(t).HSet(t.Context(), "sw:{enforce}", zone, text).Err(); err != nil {
			t.Fatal(err)
		}
		look()
	}
	unsent := func(mode string) { // an order of this Caddy that the store lacks
		t.Helper()
		server.Kill()
		if answer := setEnforce(t, zone, mode, "1h"); !strings.Contains(answer, `"note":"the store is away`) {
			t.Errorf("away: %s, want the order unsent", answer)
		}
		want("its own order while the store is away", mode)
		server.Restart(t)
	}

	unsent("shadow")
	look()
	own := inHash()
	if enforce.ParseOrder(own).Mode != "shadow" {
		t.Errorf("when Redis is back it has %q, want its own order", own)
	}
	want("its own order", "shadow")

	hear("no order")
	want("no order", "shadow")
	hear(order("25%", 0, -time.Second))
	want("an order that is over", "on")
	hear(order("25%", 0, time.Hour))
	want("an order", "25%")
	hear(order("wrong", 0, time.Hour))
	want("an order that does not fit", "on")
	half := order("50%", 0, 365*24*time.Hour)
	hear(half)
	want("an order for a year", "50%")
	if until, err := time.Parse(time.RFC3339, now().EnforceUntil); err != nil || time.Until(until) > enforce.Longest {
		t.Errorf("it lasts too long: until %s, %v", until, err)
	}
	if answer := setEnforce(t, zone, "shadow", "1h"); strings.Contains(answer, `"note"`) || enforce.ParseOrder(inHash()).Mode != "shadow" {
		t.Errorf("Redis has %q after %s, want the order sent", inHash(), answer)
	}
	hear(half)
	want("an earlier order again", "shadow")
	server.Client(t).Del(t.Context(), "sw:{enforce}")
	look()
	want("an order that has gone", "shadow")
	if got := inHash(); enforce.ParseOrder(got).Mode != "shadow" {
		t.Errorf("an order that has gone was not written again: %q", got)
	}

	unsent("shadow")
	hear(order("config", time.Minute, time.Hour))
	want("a later order", "on")
	look()
	if got := inHash(); enforce.ParseOrder(got).Mode != "config" {
		t.Errorf("a later order was overwritten: %s", got)
	}
	unsent("shadow")
	hear(order("25%", -time.Minute, time.Hour))
	want("an earlier order", "shadow")
	if got := inHash(); enforce.ParseOrder(got).Mode != "shadow" {
		t.Errorf("an earlier order was left: %s", got)
	}
}
