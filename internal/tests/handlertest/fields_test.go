package handlertest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dunglas/httpsfv"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// parseFields reads a RateLimit or RateLimit-Policy field as a client would.
func parseFields(t *testing.T, lines []string) (names []string, params []map[string]int64) {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	for _, member := range list {
		item := member.(httpsfv.Item)
		names = append(names, item.Value.(string))
		p := make(map[string]int64)
		for _, name := range item.Params.Names() {
			value, _ := item.Params.Get(name)
			p[name] = value.(int64)
		}
		params = append(params, p)
	}
	return names, params
}

func TestFields(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		name, limits  string
		decisions     []window.Decision
		policy, limit string
	}{
		{
			"one limit", `[{"max":100,"window":"1m"}]`,
			[]window.Decision{{Allowed: true, Limit: 100, Remaining: 57, EffectiveWindow: 11500 * ms}},
			`"api";q=100;w=60`, `"api";r=57;t=12`,
		},
		{
			"several limits", `[{"max":10,"window":"1s"},{"max":100,"window":"90m"},{"max":1000,"window":"1d"}]`,
			[]window.Decision{
				{Allowed: true, Limit: 10, Remaining: 9, EffectiveWindow: 1000 * ms},
				{Allowed: true, Limit: 100, Remaining: 99, EffectiveWindow: 1001 * ms},
				{Allowed: true, Limit: 1000, Remaining: 999, EffectiveWindow: 0},
			},
			`"api:1s";q=10;w=1, "api:90m";q=100;w=5400, "api:24h";q=1000;w=86400`,
			`"api:1s";r=9;t=1, "api:90m";r=99;t=2, "api:24h";r=999;t=0`,
		},
		{
			"less than a second", `[{"max":5,"window":"1ms"},{"max":10,"window":"1500ms"}]`,
			[]window.Decision{
				{Allowed: true, Limit: 5, Remaining: 4, EffectiveWindow: 1 * ms},
				{Allowed: true, Limit: 10, Remaining: 9, EffectiveWindow: 999 * ms},
			},
			`"api:1ms";q=5000;w=1, "api:1.5s";q=20;w=3`, `"api:1ms";r=4;t=1, "api:1.5s";r=9;t=1`,
		},
		{
			"more than fits", `[{"max":9007199254740992,"window":"1ms"}]`,
			[]window.Decision{{Allowed: true, Limit: 1 << 53, Remaining: 1<<53 - 1, EffectiveWindow: 1 * ms}},
			`"api";q=999999999999999;w=1`, `"api";r=999999999999999;t=1`,
		},
		{
			"nothing", `[{"max":0,"window":"1m"}]`,
			[]window.Decision{{Limit: 0, RetryAfter: window.Never, EffectiveWindow: time.Minute}},
			`"api";q=0;w=60`, `"api";r=0;t=60`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, store := NewFake(t, Decides(c.decisions...))
			h, _ := New(t, `{"zones":[{"name":"api","limits":`+c.limits+`}],"store":`+store+`}`)
			header := Serve(t, Get(), h).Header()
			if got := header.Values("RateLimit-Policy"); !slices.Equal(got, []string{c.policy}) {
				t.Errorf("RateLimit-Policy: got %q, want %q", got, c.policy)
			}
			if got := header.Values("RateLimit"); !slices.Equal(got, []string{c.limit}) {
				t.Errorf("RateLimit: got %q, want %q", got, c.limit)
			}
			if c.name == "more than fits" {
				return // httpsfv 1.1.1 reads 14 digits, where the RFC and its own writer have 15
			}
			policies, quotas := parseFields(t, header.Values("RateLimit-Policy"))
			limits, states := parseFields(t, header.Values("RateLimit"))
			if !slices.Equal(policies, limits) {
				t.Errorf("names: got %q in RateLimit-Policy, %q in RateLimit", policies, limits)
			}
			for i := range quotas {
				if quotas[i]["w"] < 1 || states[i]["r"] > quotas[i]["q"] {
					t.Errorf("got %v, %v", quotas[i], states[i])
				}
			}
		})
	}
}

// Zones are items of one line, in their order; handlers, too.
func TestFieldsOfSeveralZones(t *testing.T) {
	config := func(first, second string) string {
		return `{"zones":[
			{"name":"` + first + `","limits":[{"max":5,"window":"1h"}]},
			{"name":"` + second + `","limits":[{"max":9,"window":"1h"}]}
		]}`
	}
	one, _ := New(t, config("fields_a", "fields_b"))
	two, _ := New(t, config("fields_c", "fields_d"))
	header := Serve(t, Get(), one, two).Header()
	want := []string{"fields_a", "fields_b", "fields_c", "fields_d"}
	for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
		if lines := header.Values(field); len(lines) != 1 {
			t.Errorf("%s: got %d lines, want 1: %q", field, len(lines), lines)
		}
		if names, _ := parseFields(t, header.Values(field)); !slices.Equal(names, want) {
			t.Errorf("%s: got %q, want %q", field, names, want)
		}
	}
}

// A response has the ten tightest of many limits, whichever handler has them.
func TestFieldsOfManyZones(t *testing.T) {
	config := func(from, to int) (string, []window.Decision) {
		var zones []string
		var ds []window.Decision
		for i := from; i < to; i++ {
			zones = append(zones, fmt.Sprintf(`{"name":"many_%d","limits":[{"max":100,"window":"1m"}]}`, i))
			ds = append(ds, window.Decision{Allowed: true, Limit: 100, Remaining: int64(100 - i*37%100), EffectiveWindow: time.Minute})
		}
		return `{"zones":[` + strings.Join(zones, ",") + `]`, ds
	}
	load := func(name string, from, to int) caddyhttp.MiddlewareHandler {
		zones, ds := config(from, to)
		var h caddyhttp.MiddlewareHandler
		t.Run(name, func(*testing.T) {
			_, store := NewFake(t, Decides(ds...))
			h, _ = New(t, zones+`,"store":`+store+`}`)
		})
		return h
	}
	one := load("all", 0, 100)
	two, three := []caddyhttp.MiddlewareHandler{load("first", 0, 8)}, []caddyhttp.MiddlewareHandler{}
	for i := 8; i < 100; i += 23 {
		three = append(three, load(fmt.Sprint("from ", i), i, i+23))
	}
	want := make(map[string]bool)
	for i := range 100 {
		if i*37%100 >= 90 {
			want[fmt.Sprintf("many_%d", i)] = true
		}
	}
	for name, handlers := range map[string][]caddyhttp.MiddlewareHandler{"one handler": {one}, "five handlers": append(two, three...)} {
		header := Serve(t, Get(), handlers...).Header()
		for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
			names, _ := parseFields(t, header.Values(field))
			got := make(map[string]bool)
			for _, n := range names {
				got[n] = true
			}
			if len(header.Values(field)) != 1 || len(names) != answer.MostAnnounced || !maps.Equal(got, want) {
				t.Errorf("%s: %s: got %q, want the ten with the least left: %v", name, field, header.Values(field), want)
			}
		}
	}
}

func TestFieldsByWord(t *testing.T) {
	decision := window.Decision{Limit: 10, Remaining: 0, RetryAfter: 2 * time.Second, ResetAfter: 2500 * time.Millisecond, EffectiveWindow: time.Second}
	slack := window.Decision{Allowed: true, Limit: 20, Remaining: 20}
	for _, c := range []struct {
		word         string
		ietf, legacy bool
	}{
		{"", true, false},
		{"ietf", true, false},
		{"legacy", false, true},
		{"both", true, true},
		{"none", false, false},
	} {
		t.Run(c.word, func(t *testing.T) {
			_, store := NewFake(t, Decides(slack, decision))
			h, _ := New(t, OfZone(t, `"limits":[{"max":20,"window":"2m"},{"max":10,"window":"1m"}]`, `,"headers":"`+c.word+`","store":`+store))
			header := Serve(t, Get(), h).Header()
			for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
				if got := header.Get(name); (got != "") != c.ietf {
					t.Errorf("%s: got %q", name, got)
				}
			}
			for name, want := range map[string]string{"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3"} {
				if !c.legacy {
					want = ""
				}
				if got := header.Get(name); got != want {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			if got := header.Get("Retry-After"); got != "2" {
				t.Errorf("Retry-After: got %q, want 2 whatever the word", got)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		want string
	}{
		{time.Millisecond, "1"},
		{999 * time.Millisecond, "1"},
		{time.Second, "1"},
		{1001 * time.Millisecond, "2"},
		{time.Hour, "3600"},
		{window.Never, ""},
	} {
		_, store := NewFake(t, Decides(window.Decision{Limit: 10, RetryAfter: c.wait, EffectiveWindow: min(c.wait, time.Minute)}))
		h, _ := New(t, OfZone(t, `"limits":[{"max":10,"window":"1m"}]`, `,"store":`+store))
		w := Serve(t, Get(), h)
		if got := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || got != c.want {
			t.Errorf("denied for %s: got %d, Retry-After %q, want 429, %q", c.wait, w.Code, got, c.want)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control: got %q, want no-store", got)
		}
	}
}

// Of several denials the longest counts, and Never is the longest.
func TestRetryAfterOfSeveral(t *testing.T) {
	for _, c := range []struct {
		waits []time.Duration
		want  string
	}{
		{[]time.Duration{time.Second, time.Minute, 0}, "60"},
		{[]time.Duration{time.Minute, 0, time.Second}, "60"},
		{[]time.Duration{time.Minute, window.Never, time.Second}, ""},
	} {
		f, store := NewFake(t, nil)
		f.Become(func(context.Context, []window.Charge) ([]window.Decision, error) {
			ds := make([]window.Decision, len(c.waits))
			for i, wait := range c.waits {
				ds[i] = window.Decision{Allowed: wait == 0, RetryAfter: wait}
			}
			return ds, nil
		})
		h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1s"},{"max":2,"window":"1m"},{"max":3,"window":"1h"}]`, `,"store":`+store))
		if got := Serve(t, Get(), h).Header().Get("Retry-After"); got != c.want {
			t.Errorf("denied for %s: got Retry-After %q, want %q", c.waits, got, c.want)
		}
	}
}

// Later handlers may change an answer's fields in place.
func TestFieldsAreTheAnswersOwn(t *testing.T) {
	h, _ := New(t, OfZone(t, `"limits":[{"max":9,"window":"1m"}]`, ""))
	first, second := Serve(t, Get(), h).Header(), Serve(t, Get(), h).Header()
	want := second.Values("RateLimit-Policy")[0]
	for _, field := range []string{answer.FieldPolicy, answer.FieldRateLimit} {
		first[field] = append(first[field], "more")
		first[field][0] = "changed"
	}
	for name, header := range map[string]http.Header{"earlier": second, "later": Serve(t, Get(), h).Header()} {
		if got := header.Values("RateLimit-Policy"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s answer: RateLimit-Policy: got %q, want %q", name, got, want)
		}
	}
	if got := fmt.Sprint(first.Values("RateLimit"), first.Values("RateLimit-Policy")); got != "[changed more] [changed more]" {
		t.Errorf("got %s", got)
	}
}
