package handlertest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Clients of which the address is in are denied, and the others never. Addresses count as their
// network.
func TestEnforcePercentage(t *testing.T) {
	zone := ZoneName(t)
	h, _ := New(t, OfZone(t, `"limits":[{"max":0,"window":"1h"}],"enforce":"30%","ipv4_prefix":24`, ``))
	denied := 0
	for i := range 200 {
		want := http.StatusNoContent
		if enforce.IsEnforced(zone, fmt.Sprintf("198.51.%d.0/24", i), 30) {
			want = http.StatusTooManyRequests
			denied++
		}
		for _, last := range []string{"1", "200"} {
			r := Get()
			r.RemoteAddr = fmt.Sprintf("198.51.%d.%s:1234", i, last)
			w := Serve(t, r, h)
			if w.Code != want {
				t.Errorf("%s: got %d, want %d", r.RemoteAddr, w.Code, want)
			}
			if enforced := Expand(r, "{http.sliding_window."+zone+".enforced}"); enforced != strconv.FormatBool(want == http.StatusTooManyRequests) {
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

// What an operator sets holds in all handlers and over a reload, until its time is over.
func TestSetEnforce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := OfZone(t, `"limits":[{"max":0,"window":"1h"}]`, ``)
		h, ctx := New(t, config)
		second, err := Another(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		Start(t, ctx)
		want := func(what string, status int, handlers ...caddyhttp.MiddlewareHandler) {
			t.Helper()
			for i, h := range handlers {
				if w := Serve(t, Get(), h); w.Code != status {
					t.Errorf("%s, handler %d: got %d, want %d", what, i+1, w.Code, status)
				}
			}
		}
		set := func(mode, ttl string) {
			t.Helper()
			if answer := setEnforce(t, ZoneName(t), mode, ttl); !strings.HasPrefix(answer, "{") {
				t.Errorf("%s: %s", mode, answer)
			}
		}
		want("as configured", 429, h, second)
		set("shadow", "1h")
		want("shadow", 204, h, second)
		synctest.Wait() // their outcome comes beside the next handlers
		if n := told[control.Zones](t, http.MethodGet, "zones", "").Zones[0].Outcomes["shadow_denied"]; n != 2 {
			t.Errorf("zones count %d requests that shadow did not deny, want 2", n)
		}
		reloaded, _ := New(t, config)
		want("after a reload", 204, reloaded)
		set("on", "1h")
		want("on", 429, h, second)
		set("1%", "1h")
		passed := 0
		for i := range 50 {
			r := Get()
			r.RemoteAddr = fmt.Sprintf("198.51.100.%d:1234", i)
			if Serve(t, r, h).Code == http.StatusNoContent {
				passed++
			}
		}
		if passed < 40 {
			t.Errorf("at 1%%, %d of 50 pass", passed)
		}
		set("shadow", "500ms") // the watcher looks each second
		want("before its time is over", 204, h, second)
		time.Sleep(500 * time.Millisecond)
		want("when its time is over", 429, h, second)
		set("shadow", "1h")
		set("config", "")
		want("as configured again", 429, h, second)
	})
}

func TestSetEnforceRefused(t *testing.T) {
	const native, shadow = "set_native", "set_shadow"
	const shadowZone = `{"name":"` + shadow + `","key":"all","limits":[{"max":5,"window":"1h"}],"enforce":"shadow"}`
	_, store := NewFake(t, Decides(window.Decision{Allowed: true, Limit: 5, Remaining: 4}))
	both := `{"zones":[{"name":"` + native + `","limits":[{"max":5,"window":"1h"}],"algorithm":{"name":"gcra","native":"auto"}},` + shadowZone + `],"store":` + store + `}`
	_, ctx := New(t, both)
	stop := Start(t, ctx)
	for _, c := range []struct {
		zone, mode string
		want       string // empty: accepted
	}{
		{native, "shadow", ""},
		{native, "25%", ""},
		{native, "dry_run", `mode: zone set_native: enforce "dry_run" is unknown; write shadow`},
		{native, "", `mode: required; use one of on, shadow, mark, config, or a percentage such as 25%`},
		{native, "config", ""},
		{shadow, "25%", `mode: zone set_shadow: enforce 25%: the key has no placeholder, so that all requests would be in or out together; write on or shadow`},
		{shadow, "on", `mode: zone set_shadow: CL.THROTTLE may count zone set_native, and decides on one zone at a time; change enforce in the configuration`},
		{shadow, "mark", `mode: zone set_shadow: CL.THROTTLE may count zone set_native, and decides on one zone at a time; change enforce in the configuration`},
		{native, "mark", ""},
		{native, "config", ""},
		{shadow, "shadow", ""},
	} {
		ttl := "1h"
		if c.mode == "config" {
			ttl = ""
		}
		if got := setEnforce(t, c.zone, c.mode, ttl); c.want == "" && !strings.HasPrefix(got, "{") || c.want != "" && got != c.want {
			t.Errorf("zone %s, %q: got %s, want %s", c.zone, c.mode, got, c.want)
		}
	}
	stop()
	// A reload may bring what cannot be enforced together: the zone stays as configured.
	alone, ctx := New(t, `{"zones":[`+shadowZone+`],"store":`+store+`}`)
	stop = Start(t, ctx)
	if answer := setEnforce(t, shadow, "on", "1h"); !strings.HasPrefix(answer, "{") {
		t.Error(answer)
	}
	if w := Serve(t, Get(), alone); !strings.Contains(w.Header().Get("RateLimit"), shadow) {
		t.Errorf("alone: got %d %v, want it enforced", w.Code, w.Header())
	}
	stop()
	h, ctx := New(t, both)
	Start(t, ctx)
	if w := Serve(t, Get(), h); w.Code != 204 || strings.Contains(w.Header().Get("RateLimit"), shadow) {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	setEnforce(t, shadow, "config", "")
}

// A zone in two places is enforced in one way.
func TestEnforceInTwoHandlers(t *testing.T) {
	for enforce, same := range map[string]bool{`"shadow"`: false, `"25%"`: false, `"on"`: true, `"100%"`: true} {
		_, ctx := New(t, OfZone(t, TwoAnHour, ``))
		_, err := Another(ctx, OfZone(t, TwoAnHour+`,"enforce":`+enforce, ``))
		if (err == nil) != same || err != nil && !strings.Contains(err.Error(), "defined twice, and not the same") {
			t.Errorf("enforce %s beside a zone that says nothing: got %v", enforce, err)
		}
	}
}
