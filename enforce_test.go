package slidingwindow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// Clients of which the address is in are denied, and the others never. Addresses count as their
// network.
func TestEnforcePercentage(t *testing.T) {
	zone := handlertest.ZoneName(t)
	h, _ := newHandler(t, handlertest.OfZone(t, `"limits":[{"max":0,"window":"1h"}],"enforce":"30%","ipv4_prefix":24`, ``))
	denied := 0
	for i := range 200 {
		want := http.StatusNoContent
		if enforce.IsEnforced(zone, fmt.Sprintf("198.51.%d.0/24", i), 30) {
			want = http.StatusTooManyRequests
			denied++
		}
		for _, last := range []string{"1", "200"} {
			r := handlertest.Get()
			r.RemoteAddr = fmt.Sprintf("198.51.%d.%s:1234", i, last)
			w := handlertest.Serve(t, r, h)
			if w.Code != want {
				t.Errorf("%s: got %d, want %d", r.RemoteAddr, w.Code, want)
			}
			if enforced := handlertest.Expand(r, "{http.sliding_window."+zone+".enforced}"); enforced != strconv.FormatBool(want == http.StatusTooManyRequests) {
				t.Errorf("%s: enforced is %s", r.RemoteAddr, enforced)
			}
			if fields := w.Header().Get("RateLimit"); (fields == "") != (want == http.StatusNoContent) {
				t.Errorf("%s: RateLimit is %q", r.RemoteAddr, fields)
			}
		}
	}
	if denied < 30 || denied > 90 {
		t.Errorf("%d of 200 networks are denied, want about 60", denied)
	}
}

// What is set while Caddy runs holds in all handlers and over a reload, until its time is over.
func TestSetEnforce(t *testing.T) {
	config := handlertest.OfZone(t, `"limits":[{"max":0,"window":"1h"}]`, ``)
	h, ctx := newHandler(t, config)
	second, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(config))
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, status int, handlers ...*Handler) {
		t.Helper()
		for i, h := range handlers {
			if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != status {
				t.Errorf("%s, handler %d: got %d, want %d", what, i+1, w.Code, status)
			}
		}
	}
	set := func(word string, until time.Time) {
		t.Helper()
		if err := h.Zones[0].setEnforce(word, until); err != nil {
			t.Error(err)
		}
	}
	both := []*Handler{h, second.(*Handler)}
	want("as configured", 429, both...)
	set("shadow", time.Now().Add(time.Hour))
	want("shadow", 204, both...)
	reloaded, _ := newHandler(t, config)
	want("after a reload", 204, reloaded)
	set("on", time.Now().Add(time.Hour))
	want("on", 429, both...)
	set("1%", time.Now().Add(time.Hour))
	passed := 0
	for i := range 50 {
		r := handlertest.Get()
		r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1234", i)
		if handlertest.Serve(t, r, h).Code == http.StatusNoContent {
			passed++
		}
	}
	if passed < 40 {
		t.Errorf("at 1%%, %d of 50 pass", passed)
	}
	set("shadow", time.Now())
	want("when its time is over", 429, both...)
	set("shadow", time.Now().Add(time.Hour))
	set("config", time.Time{})
	want("as configured again", 429, both...)
}

func TestSetEnforceRefused(t *testing.T) {
	h, _ := newHandler(t, `{"zones":[
		{"name":"set_native","limits":[{"max":5,"window":"1h"}],"algorithm":{"name":"gcra"}},
		{"name":"set_shadow","key":"all","limits":[{"max":5,"window":"1h"}],"enforce":"shadow"}]}`)
	until := time.Now().Add(time.Hour)
	for _, c := range []struct {
		zone int
		word string
		want string // empty: accepted
	}{
		{0, "shadow", ""},
		{0, "25%", ""},
		{0, "dry_run", `zone set_native: enforce "dry_run" is unknown; write shadow`},
		{0, "", `zone set_native: enforce is missing; use one of on, shadow, config, or a percentage such as 25%`},
		{0, "config", ""},
		{1, "25%", `zone set_shadow: enforce 25%: the key has no placeholder, so that all requests would be in or out together; write on or shadow`},
		{1, "on", `zone set_shadow: CL.THROTTLE may count zone set_native, and decides on one zone at a time; change enforce in the configuration`},
		{1, "shadow", ""},
	} {
		err := h.Zones[c.zone].setEnforce(c.word, until)
		if got := fmt.Sprint(err); err != nil && got != c.want || err == nil && c.want != "" {
			t.Errorf("zone %d, %q: got %v, want %s", c.zone, c.word, err, c.want)
		}
	}
	// A reload may bring what cannot be enforced together: the zone stays as configured.
	h.Zones[1].control.Set(enforce.All, until)
	if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != 204 || strings.Contains(w.Header().Get("RateLimit"), "set_shadow") {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	h.Zones[1].control.Reset()
}

// A zone in two places is enforced in one way.
func TestEnforceInTwoHandlers(t *testing.T) {
	for enforce, same := range map[string]bool{`"shadow"`: false, `"25%"`: false, `"on"`: true, `"100%"`: true} {
		_, ctx := newHandler(t, handlertest.OfZone(t, handlertest.TwoAnHour, ``))
		_, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(handlertest.OfZone(t, handlertest.TwoAnHour+`,"enforce":`+enforce, ``)))
		if (err == nil) != same {
			t.Errorf("enforce %s beside a zone that says nothing: got %v", enforce, err)
		}
	}
}

// An order that could not be sent holds here, and is sent when the store is back, unless that has got a later one. What is no
// order, is over or does not fit the zone changes nothing, and neither does one that was heard before.
func TestEnforceOrders(t *testing.T) {
	server := redistest.Start(t)
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, `,"store":{"module":"redis","address":["`+server.Addr+`"],"timeout":"2s"}`))
	b := runHandler(t, h, new(storagetest.Storage))
	zone, z := handlertest.ZoneName(t), h.Zones[0]
	zones := []*running.Zone{h.newRunningZone(z)}
	inHash := func() string {
		return server.Client(t).HGet(t.Context(), "sw:{enforce}", zone).Val()
	}
	order := func(mode string, at, until time.Duration) string {
		now := time.Now().UTC()
		return fmt.Sprintf(`{"mode":%q,"until":%q,"at":%q}`, mode, now.Add(until).Format(time.RFC3339Nano), now.Add(at).Format(time.RFC3339Nano))
	}
	want := func(what, word string) {
		t.Helper()
		if got, _ := zones[0].Enforced(); got != word {
			t.Errorf("%s: enforced %s, want %s", what, got, word)
		}
	}
	hear := func(text string) {
		t.Helper()
		if err := server.Client(t).HSet(t.Context(), "sw:{enforce}", zone, text).Err(); err != nil {
			t.Fatal(err)
		}
		b.Look(t.Context())
	}

	server.Kill()
	own := enforce.NewOrder("shadow", time.Now().Add(time.Hour), "")
	if err := z.setEnforce("shadow", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	z.control.Sync.Order(own)
	if unsent := running.SendOrder(t.Context(), zones, own); len(unsent) != 1 || unsent[0].Zone != zone {
		t.Errorf("away: unsent %v", unsent)
	}
	server.Restart(t)
	b.Look(t.Context())
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
	if set := z.control.Current(); set == nil || time.Until(set.Until) > enforce.Longest {
		t.Errorf("it lasts too long: %+v", set)
	}
	if err := z.setEnforce("shadow", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	hear(half)
	want("the same order again", "shadow")
	server.Client(t).Del(t.Context(), "sw:{enforce}")
	b.Look(t.Context())
	want("an order that has gone", "shadow")

	z.control.Sync.Order(own)
	hear(order("config", time.Minute, time.Hour))
	want("a later order", "on")
	b.Look(t.Context())
	if got := inHash(); got == own {
		t.Error("a later order was overwritten")
	}
	z.control.Sync.Order(enforce.NewOrder("shadow", time.Now().Add(time.Hour), ""))
	hear(order("25%", -time.Minute, time.Hour))
	want("an earlier order", "on")
	if got := inHash(); enforce.ParseOrder(got).Mode != "shadow" {
		t.Errorf("an earlier order was left: %s", got)
	}
}
