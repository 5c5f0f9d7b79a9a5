package slidingwindow

import (
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

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
		if err := z.compileQuota(); err != nil {
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
