package slidingwindow

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestValueJSON(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Value
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
		var got Value
		if err := json.Unmarshal([]byte(c.in), &got); err != nil || got != c.want {
			t.Errorf("Unmarshal(%s): got %q, %v, want %q", c.in, got, err, c.want)
		}
		if out, err := json.Marshal(got); err != nil || string(out) != c.out {
			t.Errorf("Marshal(%q): got %s, %v, want %s", got, out, err, c.out)
		}
	}
	for _, in := range []string{`true`, `[]`, `{}`, `[5]`} {
		var v Value
		if err := json.Unmarshal([]byte(in), &v); err == nil {
			t.Errorf("Unmarshal(%s): got %q, want an error", in, v)
		}
	}
}

func TestValueDuration(t *testing.T) {
	for _, c := range []struct {
		in   Value
		want time.Duration
		ok   bool
	}{
		{"1m", time.Minute, true},
		{"1d12h", 36 * time.Hour, true},
		{"60000000000", time.Minute, true},
		{"-1s", -time.Second, true},
		{"", 0, false},
		{"1 m", 0, false},
		{"NaN", 0, false},
	} {
		got, err := c.in.duration()
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}

func TestShortDuration(t *testing.T) {
	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{time.Millisecond, "1ms"},
		{1500 * time.Millisecond, "1.5s"},
		{time.Second, "1s"},
		{90 * time.Second, "1m30s"},
		{5 * time.Minute, "5m"},
		{90 * time.Minute, "90m"},
		{time.Hour, "1h"},
		{24 * time.Hour, "24h"},
	} {
		if got := duration.Short(c.in); got != c.want {
			t.Errorf("duration.Short(%s): got %s, want %s", c.in, got, c.want)
		}
	}
}

// Limits from placeholders are those that they name, or else the fallback.
func TestExpandLimits(t *testing.T) {
	fallback := window.Policy{Limit: 7, Window: time.Minute}
	minute := func(n int64) window.Policy { return window.Policy{Limit: n, Window: time.Minute} }
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
		repl := caddy.NewEmptyReplacer()
		repl.Set("max", c.max)
		repl.Set("window", c.window)
		z := Zone{Limits: []Limit{{Max: "{max}", Window: "{window}"}}, fallback: fallback, algorithm: window.Zset{}}
		z.compileValues()
		if got, _ := z.expandLimits(repl); !slices.Equal(got, []window.Policy{c.want}) {
			t.Errorf("limit %q %q: got %v, want %v", c.max, c.window, got, c.want)
		}
	}
}

// A window that does not go with the algorithm gives the fallback.
func TestExpandLimitsWithLayers(t *testing.T) {
	fallback := window.Policy{Limit: 7, Window: time.Minute}
	for length, want := range map[string]window.Policy{
		"10s":    {Limit: 5, Window: 10 * time.Second},
		"10.5s":  {Limit: 5, Window: 10500 * time.Millisecond},
		"1h":     {Limit: 5, Window: time.Hour},
		"9999ms": fallback,
		"3h":     fallback, // more than a thousand coarse slices
	} {
		repl := caddy.NewEmptyReplacer()
		repl.Set("window", length)
		z := Zone{
			Limits:    []Limit{{Max: "5", Window: "{window}"}},
			fallback:  fallback,
			algorithm: window.Layers{Coarse: 10 * time.Second, Fine: time.Second},
		}
		z.compileValues()
		if got, _ := z.expandLimits(repl); !slices.Equal(got, []window.Policy{want}) {
			t.Errorf("limit 5 %s: got %v, want %v", length, got, want)
		}
	}
}

// A placeholder may be a part of a value, and two limits of one window become the smaller.
func TestExpandSeveralLimits(t *testing.T) {
	repl := caddy.NewEmptyReplacer()
	repl.Set("n", "1")
	z := Zone{
		algorithm: window.Zset{},
		Limits: []Limit{
			{Max: "{n}0", Window: "{n}m"},
			{Max: "10", Window: "60s"},
			{Max: "{unknown}", Window: "1h"},
			{Max: "5", Window: "{unknown}"},
			{Max: "5", Window: "1h"},
			{Max: "{n}2", Window: "60s"},
			{Max: "4", Window: "{n}h"},
		},
		fallback: window.Policy{Limit: 7, Window: time.Second},
	}
	z.compileValues()
	want := []window.Policy{
		{Limit: 10, Window: time.Minute},
		{Limit: 7, Window: time.Second},
		{Limit: 4, Window: time.Hour},
	}
	if got, _ := z.expandLimits(repl); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestExpandCost(t *testing.T) {
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
		repl := caddy.NewEmptyReplacer()
		repl.Set("cost", c.text)
		z := Zone{Cost: "{cost}", cost: 1, policies: []window.Policy{{Limit: 5, Window: time.Minute}}, algorithm: window.Zset{}}
		z.compileValues()
		if err := z.compile(); err != nil {
			t.Fatal(err)
		}
		charge, _ := z.charge("k", repl)
		if got := charge.Cost; got != c.want {
			t.Errorf("cost %q: got %d, want %d", c.text, got, c.want)
		}
	}
}

func TestLeaseDefault(t *testing.T) {
	got, err := (&Lease{Units: "10"}).engine(window.Zset{})
	if want := (window.Lease{Units: 10, TTL: time.Second}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
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
		h, _ := newHandler(t, handlertest.OfZone(t, `"limits":[{"max":100000,"window":"1h"}],"algorithm":{"name":"`+c.algorithm+`"},
			"key":"`+c.algorithm+c.cost+`","cost":"{http.request.header.X-Cost}"`, `,"headers":"legacy"`))
		w := handlertest.Serve(t, handlertest.Get("X-Cost", c.cost), h)
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

// TestBurstOfExpandedLimit takes the fallback for a window in which the burst
// cannot be counted.
func TestBurstOfExpandedLimit(t *testing.T) {
	z := &Zone{
		Limits:    []Limit{{Max: "1000000", Window: "{w}"}},
		fallback:  window.Policy{Limit: 1_000_000, Window: time.Minute},
		algorithm: window.GCRA{Burst: window.MaxProduct / 3_600_000},
	}
	z.compileValues()
	if err := z.compile(); err != nil {
		t.Fatal(err)
	}
	for w, want := range map[string]time.Duration{"1s": time.Second, "1h": time.Hour, "61m": time.Minute} {
		repl := caddy.NewReplacer()
		repl.Set("w", w)
		c, _ := z.charge("key", repl)
		if got := c.Policies[0]; got.Window != want {
			t.Errorf("window %s: %+v, want %s", w, got, want)
		}
	}
}
