package handlertest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const allPlaceholders = "{http.sliding_window.allowed} {http.sliding_window.zone} {http.sliding_window.limit} " +
	"{http.sliding_window.remaining} {http.sliding_window.retry_after} {http.sliding_window.reset_after}"

// zonePlaceholders are those of one zone.
func zonePlaceholders(zone string) string {
	return strings.ReplaceAll("{z.allowed} {z.limit} {z.remaining} {z.retry_after} {z.reset_after}", "z.", "http.sliding_window."+zone+".")
}

// requestVar is the variable in which a handler keeps what it knows of a request.
const requestVar = "sliding_window}"

func TestPlaceholders(t *testing.T) {
	const zones = `{"zones":[
		{"name":"a","limits":[{"max":10,"window":"1s"},{"max":100,"window":"1m"}]},
		{"name":"b.c","limits":[{"max":5,"window":"1m"}]}
	],"store":`
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for _, c := range []struct {
		name      string
		decisions []window.Decision
		all, a, b string
	}{
		{
			"allowed",
			[]window.Decision{
				{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: second(1)},
				{Allowed: true, Limit: 100, Remaining: 3, ResetAfter: second(50) - 1},
				{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: second(7)},
			},
			"true a 100 3 0 50", "true 100 3 0 50", "true 5 4 0 7",
		},
		{
			"denied by the second zone",
			[]window.Decision{
				{Allowed: true, Limit: 10, Remaining: 9},
				{Allowed: true, Limit: 100, Remaining: 0, ResetAfter: second(50)},
				{Limit: 5, Remaining: 0, RetryAfter: second(3), ResetAfter: second(7)},
			},
			"false b.c 5 0 3 7", "true 100 0 0 50", "false 5 0 3 7",
		},
		{
			"denied for ever",
			[]window.Decision{
				{Limit: 10, Remaining: 10, RetryAfter: window.Never},
				{Limit: 100, Remaining: 3, RetryAfter: second(9), ResetAfter: second(50)},
				{Limit: 5, Remaining: 0, RetryAfter: second(3), ResetAfter: second(7)},
			},
			"false a 10 10 0 0", "false 10 10 0 0", "false 5 0 3 7",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, store := NewFake(t, Decides(c.decisions...))
			h, _ := New(t, zones+store+`}`)
			r := Get()
			Serve(t, r, h)
			for text, want := range map[string]string{
				allPlaceholders:             c.all,
				zonePlaceholders("a"):       c.a,
				zonePlaceholders("b.c"):     c.b,
				zonePlaceholders("unknown"): "    ",
				"{http.sliding_window.unknown}{http.sliding_window.a.zone}": "",
			} {
				if got := Expand(r, text); got != want {
					t.Errorf("%s: got %q, want %q", text, got, want)
				}
			}
		})
	}
}

func TestPlaceholdersOfTwoHandlers(t *testing.T) {
	_, store := NewFake(t, Decides(window.Decision{Allowed: true, Limit: 10, Remaining: 1}))
	one, _ := New(t, `{"zones":[{"name":"one","limits":[{"max":10,"window":"1m"}]}],"store":`+store+`}`)
	two, _ := New(t, `{"zones":[{"name":"two","limits":[{"max":20,"window":"1m"}]}]}`)
	r := Get()
	Serve(t, r, one, two)
	for text, want := range map[string]string{
		"{http.sliding_window.zone} {http.sliding_window.remaining}": "two 19", // the last handler's
		"{http.sliding_window.one.remaining}":                        "1",
		"{http.sliding_window.two.remaining}":                        "19",
	} {
		if got := Expand(r, text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// A variable of the operator's stays his, whatever its name, and takes nothing away.
func TestPlaceholdersBesideVariables(t *testing.T) {
	const name = "sliding_window"
	_, store := NewFake(t, Decides(window.Decision{Allowed: true, Limit: 10, Remaining: 1}))
	h, _ := New(t, OfZone(t, `"limits":[{"max":10,"window":"1m"}]`, `,"store":`+store))
	vars := caddyhttp.VarsMiddleware{name: "hello"}
	for _, before := range []bool{true, false} {
		first, second := caddyhttp.MiddlewareHandler(vars), h
		if !before {
			first, second = second, first
		}
		r := Get()
		if _, err := TryServe(r, first, second); err != nil {
			t.Fatal(err)
		}
		if got, want := Expand(r, "{http.vars."+name+"} {http.sliding_window.allowed}"), "hello true"; got != want {
			t.Errorf("vars before the directive %t: got %q, want %q", before, got, want)
		}
	}
	// Who means to overwrite the plugin's own variable loses what it tells.
	r := Get()
	if _, err := TryServe(r, h, caddyhttp.VarsMiddleware{requestVar: "hello"}, h, caddyhttp.VarsMiddleware{requestVar: "hello"}); err != nil {
		t.Fatal(err)
	}
	if got := Expand(r, allPlaceholders+zonePlaceholders(ZoneName(t))); strings.TrimSpace(got) != "" {
		t.Errorf("overwritten: got %q, want nothing", got)
	}
	// No placeholder has its name, with or without signs of escape.
	r = Get()
	Serve(t, r, h)
	for _, text := range []string{requestVar, strings.ReplaceAll(requestVar, "}", `\}`)} {
		if got := Expand(r, "{http.vars."+text+"}"); strings.Contains(got, "slidingwindow") || len(got) > 2 {
			t.Errorf("{http.vars.%s}: got %q, want no struct", text, got)
		}
	}
}

func TestPlaceholdersWithoutDecision(t *testing.T) {
	const zone = `"key":"{http.request.header.X-Key}","limits":[{"max":10,"window":"1m"}]`
	for _, c := range []struct{ name, more, all string }{
		{"denied for want of a key", `,"empty_key":"deny"`, "false zone   0 "},
		{"not counted", `,"empty_key":"skip"`, "     "},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := New(t, `{"zones":[{"name":"zone",`+zone+c.more+`}]}`)
			r := Get()
			Serve(t, r, h)
			if got := Expand(r, allPlaceholders); got != c.all {
				t.Errorf("got %q, want %q", got, c.all)
			}
			if got := Expand(r, zonePlaceholders("zone")); got != "    " {
				t.Errorf("got %q, want nothing", got)
			}
			known := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceKnown(allPlaceholders+zonePlaceholders("zone"), "")
			if strings.Contains(known, "{") != (c.name == "not counted") {
				t.Errorf("got %q", known)
			}
		})
	}
}

// The limit, the window and the cost are the request's own.
func TestLimitFromRequest(t *testing.T) {
	h, _ := New(t, OfZone(t, `
		"key":"{http.request.header.X-Key}",
		"limits":[{"max":"{http.request.header.X-Max}","window":"{http.request.header.X-Window}"}],
		"fallback":{"max":2,"window":"1h"},
		"cost":"{http.request.header.X-Cost}"`, ""))
	for i, c := range []struct {
		key, max, window, cost string
		status                 int
		policy                 string // after the name
	}{
		{"a", "5", "10m", "", 204, `;q=5;w=600`},
		{"a", "5", "10m", "4", 204, `;q=5;w=600`},
		{"a", "5", "10m", "1", 429, `;q=5;w=600`},
		{"a", "5", "10m", "0", 204, `;q=5;w=600`},
		{"a", "6", "10m", "1", 204, `;q=6;w=600`},
		{"b", "-1", "10m", "", 204, `;q=2;w=3600`},
		{"b", "NaN", "10m", "-7", 204, `;q=2;w=3600`},
		{"b", "9223372036854775808", "10m", "", 429, `;q=2;w=3600`},
		{"c", "5", "0", "-9223372036854775809", 204, `;q=2;w=3600`},
		{"c", "5", "0", "9223372036854775808", 429, `;q=2;w=3600`},
		{"c", "5", "10m", "9223372036854775807", 429, `;q=5;w=600`},
		{"c", "0", "10m", "", 429, `;q=0;w=600`},
		{"c", "5", "10m", "1.5", 204, `;q=5;w=600`},
	} {
		r := Get("X-Key", c.key, "X-Max", c.max, "X-Window", c.window, "X-Cost", c.cost)
		w := Serve(t, r, h)
		if w.Code != c.status {
			t.Errorf("%d: %v: got %d, want %d", i, c, w.Code, c.status)
		}
		if want := `"` + ZoneName(t) + `"` + c.policy; w.Header().Get("RateLimit-Policy") != want {
			t.Errorf("%d: %v: RateLimit-Policy: got %s, want %s", i, c, w.Header().Get("RateLimit-Policy"), want)
		}
	}
}

func TestCostZeroNeverSpends(t *testing.T) {
	for _, algorithm := range []string{"zset", "slices"} {
		t.Run(algorithm, func(t *testing.T) {
			zone := `"limits":[{"max":1,"window":"1h"}],"cost":"{http.request.header.X-Cost}","algorithm":{"name":"` + algorithm + `"}`
			h, _ := New(t, OfZone(t, zone, ""))
			for range 5 {
				if w := Serve(t, Get("X-Cost", "0"), h); w.Code != http.StatusNoContent {
					t.Errorf("got %d, want 204", w.Code)
				}
			}
			if w := Serve(t, Get("X-Cost", "1"), h); w.Code != http.StatusNoContent {
				t.Errorf("cost 1 after cost 0: got %d, want 204", w.Code)
			}
		})
	}
}

// A request that one zone denies is not charged in another, in whatever order.
func TestAllOrNothing(t *testing.T) {
	const open, closed = `{"name":"nothing_open","limits":[{"max":1,"window":"1h"}],"key":"%s"}`, `{"name":"nothing_closed","limits":[{"max":0,"window":"1h"}]}`
	for i, order := range [][2]string{{open, closed}, {closed, open}} {
		key := string(rune('a' + i))
		denying, _ := New(t, strings.ReplaceAll(`{"zones":[`+order[0]+`,`+order[1]+`]}`, "%s", key))
		alone, _ := New(t, strings.ReplaceAll(`{"zones":[`+open+`]}`, "%s", key))
		for range 3 {
			if w := Serve(t, Get(), denying); w.Code != http.StatusTooManyRequests {
				t.Errorf("order %d: got %d, want 429", i, w.Code)
			}
		}
		if w := Serve(t, Get(), alone); w.Code != http.StatusNoContent {
			t.Errorf("order %d: alone: got %d, want 204", i, w.Code)
		}
	}
}

func TestZoneMatch(t *testing.T) {
	h, _ := New(t, OfZone(t, `"match":[{"method":["POST"]},{"header":{"X-Count":["yes"]}}],"limits":[{"max":0,"window":"1h"}]`, ""))
	post := Get()
	post.Method = http.MethodPost
	for name, c := range map[string]struct {
		r    *http.Request
		want int
	}{
		"no set matches":     {Get(), http.StatusNoContent},
		"the first matches":  {post, http.StatusTooManyRequests},
		"the second matches": {Get("X-Count", "yes"), http.StatusTooManyRequests},
	} {
		if w := Serve(t, c.r, h); w.Code != c.want {
			t.Errorf("%s: got %d, want %d", name, w.Code, c.want)
		} else if counted := w.Header().Get("RateLimit") != ""; counted != (c.want != http.StatusNoContent) {
			t.Errorf("%s: RateLimit %q", name, w.Header().Get("RateLimit"))
		}
	}
}
