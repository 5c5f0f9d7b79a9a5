package promises

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/tests/handlertest"
)

// TestClients holds what clients get: header fields, and the members of problem details with their types.
func TestClients(t *testing.T) {
	const one = `"limits":[{"max":1,"window":"1h"}]`
	var got []string
	answers := func(what string, want int, h caddyhttp.MiddlewareHandler) {
		t.Helper()
		w := handlertest.Serve(t, handlertest.Get(), h)
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", what, w.Code, want)
		}
		for name := range w.Header() {
			got = append(got, fmt.Sprintf("%s: field %s", what, name))
		}
		if w.Body.Len() == 0 {
			return
		}
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		for name := range body {
			got = append(got, fmt.Sprintf("%s: member %s: %s", what, name, kind(reflect.TypeOf(body[name]))))
		}
		if status, ok := body["status"]; ok {
			got = append(got, fmt.Sprintf("%s: type %s, status %v", what, body["type"], status))
		}
	}
	for _, word := range []string{"ietf", "legacy"} {
		h, _ := handlertest.New(t, fmt.Sprintf(`{"zones":[{"name":"promised.%s",%s}],"headers":%[1]q}`, word, one))
		answers("headers "+word, http.StatusNoContent, h)
		answers("headers "+word+", denied", http.StatusTooManyRequests, h)
	}
	h, _ := handlertest.New(t, `{"zones":[{"name":"promised.empty","key":"{http.request.header.X-Key}","empty_key":"deny","empty_key_status":401,`+one+`}]}`)
	answers("empty_key deny 401", http.StatusUnauthorized, h)
	h, _ = handlertest.New(t, `{"zones":[{"name":"promised.away",`+one+`}],"on_error":"deny","store":{"module":"redis","address":["127.0.0.1:1"]}}`)
	answers("on_error deny", http.StatusServiceUnavailable, h)
	for key, status := range map[string]int{"{http.request.header.X-Key}": http.StatusTooManyRequests, "all": http.StatusServiceUnavailable} {
		h, _ = handlertest.New(t, fmt.Sprintf(`{"zones":[{"name":"promised.concurrent%d","key":%q,"concurrent":{"max":0}}]}`, status, key))
		answers(fmt.Sprintf("concurrent, denied with %d", status), status, h)
	}
	for _, word := range []string{"openai", "anthropic"} {
		h, _ := handlertest.New(t, fmt.Sprintf(`{"zones":[{"name":"promised.%s",%s}],"errors":%[1]q}`, word, one))
		answers("errors "+word, http.StatusNoContent, h)
		answers("errors "+word+", denied", http.StatusTooManyRequests, h)
	}
	slices.Sort(got)
	hold(t, "clients", slices.Compact(got))
}

// TestPlaceholders holds the placeholders of docs/clients.md: each has a value in a request.
func TestPlaceholders(t *testing.T) {
	text, err := os.ReadFile("docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := handlertest.New(t, `{"zones":[{"name":"promised.placeholders","limits":[{"max":1,"window":"1h"}]}]}`)
	r := handlertest.Get()
	handlertest.Serve(t, r, h)
	known := map[string]bool{}
	look := func(name string) {
		name = "http.sliding_window." + name
		if _, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Get(strings.Replace(name, "<zone>", "promised.placeholders", 1)); ok {
			known["{"+name+"}"] = true
		}
	}
	for _, m := range regexp.MustCompile(`\{http\.sliding_window\.([a-z_.<>]+)\}`).FindAllStringSubmatch(string(text), -1) {
		look(m[1])
	}
	for _, field := range []string{"allowed", "limit", "retry_after", "reset_after"} {
		look("<zone>." + field)
	}
	hold(t, "placeholders", slices.Collect(maps.Keys(known)))
}
