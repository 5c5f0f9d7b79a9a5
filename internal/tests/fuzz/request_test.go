package fuzz

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dunglas/httpsfv"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
)

// load provisions a handler of a configuration of its own.
func load(t testing.TB, config []byte) (*slidingwindow.Handler, context.CancelFunc, error) {
	t.Helper()
	base, err := caddy.ProvisionContext(&caddy.Config{Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(base)
	h, err := ctx.LoadModuleByID("http.handlers.sliding_window", config)
	if err != nil {
		return nil, cancel, err
	}
	return h.(*slidingwindow.Handler), cancel, nil
}

// serve returns the answer to a request, which must be fit to send. 204 says that
// the request passed.
func serve(t *testing.T, h *slidingwindow.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w, repl := httptest.NewRecorder(), caddy.NewReplacer()
	r = caddyhttp.PrepareRequest(r, repl, w, &caddyhttp.Server{})
	err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	repl.ReplaceAll("{http.sliding_window.zone}{http.sliding_window.remaining}{http.sliding_window.api.reset_after}", "")
	checkFields(t, w.Header())
	if w.Code != http.StatusNoContent && !json.Valid(w.Body.Bytes()) {
		t.Errorf("the body is %s", w.Body)
	}
	return w
}

// longest is an integer of 15 digits, without the last of them.
var longest = regexp.MustCompile(`\b(\d{14})\d\b`)

// checkFields reports what a client could not read.
func checkFields(t *testing.T, header http.Header) {
	t.Helper()
	if after := header.Get("Retry-After"); after != "" {
		if n, err := strconv.ParseInt(after, 10, 64); err != nil || n < 1 {
			t.Errorf("Retry-After: %s", after)
		}
	}
	held := make(map[any]bool) // the policies without a window
	for _, field := range [...][3]string{{"RateLimit-Policy", "q", "w"}, {"RateLimit", "r", "t"}} {
		name, params := field[0], field[1:]
		lines := append([]string(nil), header.Values(name)...)
		for i := range lines {
			// httpsfv 1.1.1 writes integers of 15 digits and reads them only at the end.
			lines[i] = longest.ReplaceAllString(lines[i], "$1")
		}
		list, err := httpsfv.UnmarshalList(lines)
		if err != nil {
			t.Errorf("%s: %q: %v", name, lines, err)
		}
		for _, member := range list {
			item := member.(httpsfv.Item)
			if unit, _ := item.Params.Get("qu"); unit == "concurrent-requests" {
				held[item.Value] = true
			}
			for _, param := range params {
				if held[item.Value] && param != "q" && param != "r" {
					continue
				}
				value, _ := item.Params.Get(param)
				if n, ok := value.(int64); !ok || n < 0 || param == "w" && n < 1 {
					t.Errorf("%s: %q: %s is %v", name, lines, param, value)
				}
			}
		}
	}
}

// FuzzPlaceholderLimits: whatever clients say of their limit, window and cost,
// they get an answer that they can read, and it is no server error.
func FuzzPlaceholderLimits(f *testing.F) {
	for _, algorithm := range []string{"zset", "slices"} {
		f.Add(algorithm == "zset", "5", "1m", "1", "k")
		f.Add(algorithm == "zset", "", "", "", "")
		f.Add(algorithm == "zset", "0", "1ms", "0", "k")
		f.Add(algorithm == "zset", "-1", "0", "-1", "{http.request.header.X-A}")
		f.Add(algorithm == "zset", "9007199254740992", "1ms", "9223372036854775807", "\xff")
		f.Add(algorithm == "zset", "9223372036854775808", "106751d", "9223372036854775808", "\x00")
		f.Add(algorithm == "zset", "1e3", "1.5ms", "NaN", "::ffff:192.0.2.7")
		f.Add(algorithm == "zset", "1", "2562047h", "1", "fe80::1%eth0")
		f.Add(algorithm == "zset", "{", "}", "{}", "{{}")
	}
	handlers := make(map[bool]*slidingwindow.Handler)
	for _, algorithm := range []string{"zset", "slices"} {
		h, cancel, err := load(f, []byte(`{"zones":[
			{"name":"api","key":"{http.request.header.X-Key}","algorithm":{"name":"`+algorithm+`"},
			 "limits":[{"max":"{http.request.header.X-Max}","window":"{http.request.header.X-Window}"},{"max":1000,"window":"1h"}],
			 "fallback":{"max":5,"window":"1m"},"cost":"{http.request.header.X-Cost}"},
			{"name":"all","limits":[{"max":"{http.request.header.X-Max}","window":"1s"}],"fallback":{"max":50,"window":"1s"}}
		],"headers":"both","jitter":1}`))
		f.Cleanup(cancel)
		if err != nil {
			f.Fatal(err)
		}
		handlers[algorithm == "zset"] = h
	}
	f.Fuzz(func(t *testing.T, zset bool, limit, window, cost, key string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = http.Header{"X-Max": {limit}, "X-Window": {window}, "X-Cost": {cost}, "X-Key": {key}}
		for range 2 {
			w := serve(t, handlers[zset], r)
			if w.Code != http.StatusNoContent && w.Code != http.StatusTooManyRequests {
				t.Errorf("got %d, want 204 or 429", w.Code)
			}
			if w.Header().Get("RateLimit") == "" || w.Header().Get("X-RateLimit-Limit") == "" {
				t.Errorf("fields are missing: %v", w.Header())
			}
		}
	})
}
