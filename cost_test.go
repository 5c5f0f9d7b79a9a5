package slidingwindow

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

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
		h, _ := newHandler(t, zoneHandler(t, `"limits":[{"max":100000,"window":"1h"}],"algorithm":{"name":"`+c.algorithm+`"},
			"key":"`+c.algorithm+c.cost+`","cost":"{http.request.header.X-Cost}"`, `,"headers":"legacy"`))
		w := serve(t, get("X-Cost", c.cost), h)
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
