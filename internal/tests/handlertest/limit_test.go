package handlertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestValueJSON(t *testing.T) {
	for _, c := range []struct {
		in   string
		want slidingwindow.Value
		out  string
	}{
		{`5`, "5", `5`},
		{`0`, "0", `0`},
		{`-5`, "-5", `-5`},
		{`"5"`, "5", `5`},
		{`"05"`, "05", `"05"`},
		{`"+5"`, "+5", `"+5"`},
		{`1.5`, "1.5", `"1.5"`},
		{`1e3`, "1e3", `"1e3"`},
		{`9007199254740992`, "9007199254740992", `9007199254740992`},
		{`-9007199254740993`, "-9007199254740993", `"-9007199254740993"`},
		{`9007199254740993`, "9007199254740993", `"9007199254740993"`},
		{`9223372036854775807`, "9223372036854775807", `"9223372036854775807"`},
		{`9223372036854775808`, "9223372036854775808", `"9223372036854775808"`},
		{`"1m"`, "1m", `"1m"`},
		{`60000000000`, "60000000000", `60000000000`},
		{`"{http.vars.max}"`, "{http.vars.max}", `"{http.vars.max}"`},
		{`""`, "", `""`},
		{`null`, "", `""`},
	} {
		var got slidingwindow.Value
		if err := json.Unmarshal([]byte(c.in), &got); err != nil || got != c.want {
			t.Errorf("Unmarshal(%s): got %q, %v, want %q", c.in, got, err, c.want)
		}
		if out, err := json.Marshal(got); err != nil || string(out) != c.out {
			t.Errorf("Marshal(%q): got %s, %v, want %s", got, out, err, c.out)
		}
	}
	for _, in := range []string{`true`, `[]`, `{}`, `[5]`} {
		var v slidingwindow.Value
		if err := json.Unmarshal([]byte(in), &v); err == nil {
			t.Errorf("Unmarshal(%s): got %q, want an error", in, v)
		}
	}
}

// charging returns what a zone charges for requests with these header fields, name after name, all of which pass.
func charging(t *testing.T, zone string) func(header ...string) window.Charge {
	t.Helper()
	f, store := NewFake(t, func(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
		ds := make([]window.Decision, engine.CountPolicies(charges))
		for i := range ds {
			ds[i].Allowed = true
		}
		return ds, engine.CheckCharges(charges)
	})
	h, _ := New(t, OfZone(t, zone, `,"store":`+store))
	return func(header ...string) window.Charge {
		t.Helper()
		before := len(f.Taken())
		Serve(t, Get(header...), h)
		taken := f.Taken()
		if len(taken) != before+1 || len(taken[before]) != 1 {
			t.Fatalf("the store was asked for %v", taken[before:])
		}
		return taken[before][0]
	}
}

// Limits from placeholders are those that they name, or else the fallback.
func TestExpandLimits(t *testing.T) {
	fallback := window.Policy{Limit: 7, Window: time.Minute}
	minute := func(n int64) window.Policy { return window.Policy{Limit: n, Window: time.Minute} }
	charge := charging(t, `"limits":[{"max":"{http.request.header.X-Max}","window":"{http.request.header.X-Window}"}],"fallback":{"max":7,"window":"1m"}`)
	for _, c := range []struct {
		max, window string
		want        window.Policy
	}{
		{"5", "1m", minute(5)},
		{"0", "1m", minute(0)},
		{"5", "60000000000", minute(5)},
		{"9007199254740992", "1ms", window.Policy{Limit: 1 << 53, Window: time.Millisecond}},
		{"", "1m", fallback},
		{"5", "", fallback},
		{"", "", fallback},
		{"-1", "1m", fallback},
		{"9223372036854775808", "1m", fallback},
		{"9007199254740993", "1ms", fallback},
		{"NaN", "1m", fallback},
		{"1e3", "1m", fallback},
		{"5 ", "1m", fallback},
		{"5", "0", fallback},
		{"5", "-1m", fallback},
		{"5", "1us", fallback},
		{"5", "1.5ms", fallback},
		{"5", "60", fallback},
		{"5", "999999999999d", fallback},
		{"{", "}", fallback},
		{"{max}", "1m", fallback},
	} {
		if got := charge("X-Max", c.max, "X-Window", c.window).Policies; !slices.Equal(got, []window.Policy{c.want}) {
			t.Errorf("limit %q %q: got %v, want %v", c.max, c.window, got, c.want)
		}
	}
}

// A window that does not go with the algorithm gives the fallback.
func TestExpandLimitsWithLayers(t *testing.T) {
	fallback := window.Policy{Limit: 7, Window: time.Minute}
	charge := charging(t, `"limits":[{"max":5,"window":"{http.request.header.X-Window}"}],"fallback":{"max":7,"window":"1m"},
		"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"1s"}}`)
	for length, want := range map[string]window.Policy{
		"10s":    {Limit: 5, Window: 10 * time.Second},
		"10.5s":  {Limit: 5, Window: 10500 * time.Millisecond},
		"1h":     {Limit: 5, Window: time.Hour},
		"9999ms": fallback,
		"3h":     fallback, // more than a thousand coarse slices
	} {
		if got := charge("X-Window", length).Policies; !slices.Equal(got, []window.Policy{want}) {
			t.Errorf("limit 5 %s: got %v, want %v", length, got, want)
		}
	}
}

// A placeholder may be a part of a value, and two limits of one window become the smaller.
func TestExpandSeveralLimits(t *testing.T) {
	charge := charging(t, strings.ReplaceAll(`"limits":[
		{"max":"{n}0","window":"{n}m"},
		{"max":10,"window":"60s"},
		{"max":"{unknown}","window":"1h"},
		{"max":5,"window":"{unknown}"},
		{"max":5,"window":"{n}h"},
		{"max":"{n}2","window":"0{n}m"},
		{"max":4,"window":"0{n}h"}
	],"fallback":{"max":7,"window":"1s"}`, "{n}", "{http.request.header.X-N}"))
	want := []window.Policy{
		{Limit: 10, Window: time.Minute},
		{Limit: 7, Window: time.Second},
		{Limit: 4, Window: time.Hour},
	}
	if got := charge("X-N", "1").Policies; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The fallback takes the place of a limit in whose window the burst cannot be counted.
func TestBurstOfExpandedLimit(t *testing.T) {
	charge := charging(t, fmt.Sprintf(`"limits":[{"max":1000000,"window":"{http.request.header.X-Window}"}],"fallback":{"max":1000000,"window":"1m"},
		"algorithm":{"name":"gcra","burst":%d}`, window.MaxProduct/3_600_000))
	for w, want := range map[string]time.Duration{"1s": time.Second, "1h": time.Hour, "61m": time.Minute} {
		if got := charge("X-Window", w).Policies[0]; got.Window != want {
			t.Errorf("window %s: %+v, want %s", w, got, want)
		}
	}
}

func TestExpandCost(t *testing.T) {
	charge := charging(t, `"limits":[{"max":5,"window":"1m"}],"cost":"{http.request.header.X-Cost}"`)
	for _, c := range []struct {
		text string
		want int64
	}{
		{"3", 3},
		{"0", 0},
		{"", 1},
		{"-1", 1},
		{"NaN", 1},
		{"1.5", 1},
		{"0x10", 1},
		{"9223372036854775807", 1<<63 - 1},
		{"9223372036854775808", 1<<63 - 1},
		{"-9223372036854775809", 1},
		{"{cost}", 1},
	} {
		if got := charge("X-Cost", c.text).Cost; got != c.want {
			t.Errorf("cost %q: got %d, want %d", c.text, got, c.want)
		}
	}
}

func TestLeaseDefault(t *testing.T) {
	got := charging(t, `"limits":[{"max":100,"window":"1h"}],"lease":{"units":"10"}`)().Lease
	if want := (window.Lease{Units: 10, TTL: time.Second}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A cost is what a placeholder says, up to the largest there is; without a number it is 1.
func TestCost(t *testing.T) {
	for _, c := range []struct {
		algorithm, cost string
		want            int
		remaining       string
	}{
		{"zset", "10001", http.StatusNoContent, "89999"},
		{"zset", "100000", http.StatusNoContent, "0"},
		{"zset", "100001", http.StatusTooManyRequests, "100000"},
		{"zset", "9223372036854775807", http.StatusTooManyRequests, "100000"},
		{"zset", "-1", http.StatusNoContent, "99999"},
		{"zset", "9223372036854775808", http.StatusTooManyRequests, "100000"},
		{"zset", "-9223372036854775809", http.StatusNoContent, "99999"},
		{"log", "9223372036854775807", http.StatusTooManyRequests, "100000"},
		{"log", "9223372036854775808", http.StatusTooManyRequests, "100000"},
		{"log", "1e99", http.StatusNoContent, "99999"},
		{"log", "10001", http.StatusNoContent, "89999"},
	} {
		h, _ := New(t, OfZone(t, `"limits":[{"max":100000,"window":"1h"}],"algorithm":{"name":"`+c.algorithm+`"},
			"key":"`+c.algorithm+c.cost+`","cost":"{http.request.header.X-Cost}"`, `,"headers":"legacy"`))
		w := Serve(t, Get("X-Cost", c.cost), h)
		if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != c.want || got != c.remaining || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s, cost %s: %d, %s remaining, Retry-After %q, want %d, %s and none",
				c.algorithm, c.cost, w.Code, got, w.Header().Get("Retry-After"), c.want, c.remaining)
		}
	}
}

// CL.THROTTLE cannot count under two names.
func TestNativeWithTwoSecrets(t *testing.T) {
	load := func(native, secrets string) error {
		base, err := caddy.ProvisionContext(&caddy.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := caddy.NewContext(base)
		defer cancel()
		_, err = ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(`{"zones":[{"name":"api","limits":[{"max":5,"window":"1m"}],
			"algorithm":{"name":"gcra","native":"`+native+`"}}],"store":{"module":"redis","hash_keys":[`+secrets+`]}}`))
		return err
	}
	const one, two = `"a secret of a fleet"`, `"a secret of a fleet","the secret before it"`
	if err := load("on", two); err == nil || !strings.Contains(err.Error(), "zone api: algorithm gcra: native on: CL.THROTTLE cannot count under the names of two secrets; use native auto") {
		t.Errorf("native on: got %v, want it refused", err)
	}
	for _, c := range [][2]string{{"on", one}, {"auto", two}, {"off", two}} {
		if err := load(c[0], c[1]); err != nil {
			t.Errorf("native %s, secrets %s: %v", c[0], c[1], err)
		}
	}
}
