package handlertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// What came out empty is a metric by zone and option, and one warning a minute with the
// placeholder and the usual cause.
func TestEmptyValues(t *testing.T) {
	const limit = `"limits":[{"max":9,"window":"1h"}]`
	for _, c := range []struct {
		name, zone, remote       string
		option, placeholder, why string // why is a part of the cause; empty for no warning
	}{
		{"user", `"key":"{http.auth.user.id}",` + limit, "", "key", "{http.auth.user.id}", "runs before basic_auth"},
		{"header", `"key":"{http.request.header.X-Key}",` + limit, "", "key", "{header.X-Key}", "no such header field"},
		{"text around", `"key":"a-{http.request.cookie.sid}-b",` + limit, "", "key", "{cookie.sid}", "no such cookie"},
		{"two", `"key":"{quota}{plan}",` + limit, "", "key", "{quota}", "no map"},
		{"unix socket", limit, "@", "key", "{client_ip}", "unix socket"},
		{"unix socket by another name", `"key":"{http.request.remote.host}",` + limit, "@", "key", "{remote_host}", "unix socket"},
		{"unix socket and network", `"key":"{http.request.remote.host/24}",` + limit, "@", "key", "{http.request.remote.host/24}", "unix socket"},
		{"client_ip in JSON", `"key":"{client_ip}",` + limit, "@", "key", "{client_ip}", "unix socket"},
		{"host", `"key":"{http.regexp.name.1}",` + limit, "", "key", "{re.name.1}", "no matcher of that name"},
		{"shared on purpose", `"empty_key":"shared","key":"{http.auth.user.id}",` + limit, "", "key", "", ""},
		{"skipped on purpose", `"empty_key":"skip","key":"{http.auth.user.id}",` + limit, "", "key", "", ""},
		{"denied on purpose", `"empty_key":"deny","key":"{http.auth.user.id}",` + limit, "", "key", "", ""},
		{"limit", `"limits":[{"max":"{quota}","window":"1h"}],"fallback":{"max":9,"window":"1h"}`, "", "limit", "{quota}", "no map"},
		{"window", `"limits":[{"max":1,"window":"{http.vars.window}"}],"fallback":{"max":9,"window":"1h"}`, "", "limit", "{vars.window}", "no vars"},
		{"unit of a window", `"limits":[{"max":1,"window":"{http.vars.window}m"}],"fallback":{"max":9,"window":"1h"}`, "", "limit", "{vars.window}", "no vars"},
		{"rest of a limit", `"limits":[{"max":"9{http.request.header.X-Zeros}","window":"1h"}],"fallback":{"max":9,"window":"1h"}`, "", "limit", "{header.X-Zeros}", "no such header"},
		{"cost", `"cost":"{http.request.header.X-Cost}",` + limit, "", "cost", "{header.X-Cost}", "no such header"},
		{"rest of a cost", `"cost":"1{http.request.uri.query.zeros}",` + limit, "", "cost", "{query.zeros}", "no such query"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, ctx, logs := NewObserved(t, zap.WarnLevel, OfZone(t, c.zone, ""))
			before := emptyValues(t, ctx, ZoneName(t))
			ask := func() {
				r := Get()
				if c.remote != "" {
					r.RemoteAddr = c.remote
				}
				if _, err := TryServe(r, h); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				ask()
			}
			want := map[string]float64{"key": 0, "limit": 0, "cost": 0}
			if c.why != "" {
				want[c.option] = 3
			}
			for option, n := range emptyValues(t, ctx, ZoneName(t)) {
				if n -= before[option]; n != want[option] {
					t.Errorf("empty_values_total of option %s: got %v, want %v", option, n, want[option])
				}
			}
			entries := logs.TakeAll()
			if c.why == "" {
				if len(entries) != 0 {
					t.Errorf("got %v, want no line", entries)
				}
				return
			}
			if len(entries) != 1 {
				t.Fatalf("got %d lines for three requests, want 1: %v", len(entries), entries)
			}
			fields := entries[0].ContextMap()
			if entries[0].Message != "placeholder has no value in a request" || fields["option"] != c.option || fields["zone"] != ZoneName(t) ||
				fields["placeholder"] != c.placeholder || !strings.Contains(fields["usual_cause"].(string), c.why) {
				t.Errorf("got %q %v, want %s, %s and %q", entries[0].Message, fields, c.option, c.placeholder, c.why)
			}
		})
	}
}

func emptyValues(t *testing.T, ctx caddy.Context, zone string) map[string]float64 {
	t.Helper()
	n := make(map[string]float64)
	for _, option := range []string{"key", "limit", "cost"} {
		n[option] = Metric(t, ctx, "caddy_sliding_window_empty_values_total", "zone", zone, "option", option)
	}
	return n
}

// What has a value makes no line: a value that is 0, not valid, or empty beside another one.
func TestValuesThatAreNotEmpty(t *testing.T) {
	h, ctx, logs := NewObserved(t, zap.WarnLevel, `{"zones":[{"name":"not_empty","key":"{http.request.header.X-A}{http.request.header.X-Missing}",
		"limits":[{"max":"{http.request.header.X-Max}","window":"1h"}],"fallback":{"max":9,"window":"1h"},"cost":"{http.request.header.X-Cost}"}]}`)
	before := emptyValues(t, ctx, "not_empty")
	for _, header := range [][]string{{"5", "0"}, {"many", "few"}, {"-1", "-1"}} {
		if _, err := TryServe(Get("X-A", "a", "X-Max", header[0], "X-Cost", header[1]), h); err != nil {
			t.Fatal(err)
		}
	}
	if logs.Len() != 0 {
		t.Errorf("got %v, want no line", logs.All())
	}
	for option, n := range emptyValues(t, ctx, "not_empty") {
		if n != before[option] {
			t.Errorf("option %s: got %v, want %v", option, n, before[option])
		}
	}
}

// Clients of a unix socket have no address: empty_key decides, whatever the placeholder.
func TestEmptyAddressOfUnixSocket(t *testing.T) {
	for _, key := range []string{"{http.vars.client_ip}", "{http.request.remote}", "{http.request.remote.host}"} {
		h, _ := New(t, OfZone(t, `"key":"`+key+`","empty_key":"deny","limits":[{"max":9,"window":"1h"}]`, ""))
		r := Get()
		r.RemoteAddr = "@"
		if w := Serve(t, r, h); w.Code != http.StatusTooManyRequests {
			t.Errorf("key %s: got %d, want 429", key, w.Code)
		}
	}
}

// Only a trusted proxy says who the client is.
func TestForwardedForChangesNothing(t *testing.T) {
	h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1h"}]`, ""))
	for i, from := range []string{"198.51.100.1", "198.51.100.2", "192.0.2.1, 198.51.100.3"} {
		w := Serve(t, Get("X-Forwarded-For", from, "X-Real-Ip", from, "Forwarded", "for="+from), h)
		want := http.StatusTooManyRequests
		if i == 0 {
			want = http.StatusNoContent
		}
		if w.Code != want {
			t.Errorf("X-Forwarded-For %s: got %d, want %d", from, w.Code, want)
		}
	}
}

func TestEmptyKey(t *testing.T) {
	const key = `"key":"{http.request.header.X-Key}","limits":[{"max":1,"window":"1h"}]`
	for _, c := range []struct {
		word string
		want []int // of two requests without a key, then two with one
	}{
		{"", []int{204, 429, 204, 429}},
		{"shared", []int{204, 429, 204, 429}},
		{"skip", []int{204, 204, 204, 429}},
		{"deny", []int{429, 429, 204, 429}},
	} {
		t.Run(c.word, func(t *testing.T) {
			h, _ := New(t, OfZone(t, key+`,"empty_key":"`+c.word+`"`, ""))
			for i, want := range c.want {
				r := Get()
				if i >= 2 {
					r = Get("X-Key", "k")
				}
				w := Serve(t, r, h)
				if w.Code != want {
					t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
				}
				if c.word == "deny" && i < 2 {
					if got := w.Header().Get("Retry-After"); got != "" {
						t.Errorf("Retry-After: got %s, want none: no waiting helps", got)
					}
					if got := w.Header().Get("RateLimit"); got != "" {
						t.Errorf("RateLimit: got %s, want none", got)
					}
				}
			}
		})
	}
}

// A request that one zone denies for want of a key costs nothing in another.
func TestDeniedForWantOfAKeyCostsNothing(t *testing.T) {
	h, _ := New(t, `{"zones":[
		{"name":"want_first","limits":[{"max":1,"window":"1h"}]},
		{"name":"want_second","key":"{http.request.header.X-Key}","empty_key":"deny","limits":[{"max":9,"window":"1h"}]}
	]}`)
	if w := Serve(t, Get(), h); w.Code != http.StatusTooManyRequests {
		t.Errorf("without a key: got %d, want 429", w.Code)
	}
	if w := Serve(t, Get("X-Key", "k"), h); w.Code != http.StatusNoContent {
		t.Errorf("with a key: got %d, want 204", w.Code)
	}
}
