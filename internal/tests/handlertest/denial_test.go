package handlertest

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestProblemDetails(t *testing.T) {
	const quota = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	for _, c := range []struct {
		name, zone string
		decisions  []window.Decision
		want       map[string]any
	}{
		{
			"one limit", `"limits":[{"max":1,"window":"1m"}]`,
			[]window.Decision{{Limit: 1, RetryAfter: 1500 * time.Millisecond}},
			map[string]any{
				"type": quota, "title": "Rate limit exceeded", "status": 429.0, "detail": "Try again in 2 s.",
				"violated-policies": []any{"api"}, "retry_after": 2.0,
			},
		},
		{
			"two of three limits", `"limits":[{"max":1,"window":"1s"},{"max":2,"window":"1m"},{"max":3,"window":"1h"}]`,
			[]window.Decision{{RetryAfter: time.Second}, {Allowed: true}, {RetryAfter: time.Hour}},
			map[string]any{
				"type": quota, "title": "Rate limit exceeded", "status": 429.0, "detail": "Try again in 3600 s.",
				"violated-policies": []any{"api:1s", "api:1h"}, "retry_after": 3600.0,
			},
		},
		{
			"never", `"cost":2,"limits":[{"max":1,"window":"1m"}]`,
			[]window.Decision{{Limit: 1, RetryAfter: window.Never}},
			map[string]any{
				"type": quota, "title": "Rate limit exceeded", "status": 429.0, "detail": "This request can never pass: it costs more than the limit.",
				"violated-policies": []any{"api"},
			},
		},
		{
			"no key", `"key":"{http.request.header.X-Key}","empty_key":"deny","limits":[{"max":1,"window":"1m"}]`,
			nil,
			map[string]any{
				"type": quota, "title": "Rate limit exceeded", "status": 429.0, "detail": "The request lacks what it is counted by.",
				"violated-policies": []any{"api"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, store := NewFake(t, Decides(c.decisions...))
			h, _ := New(t, `{"zones":[{"name":"api",`+c.zone+`}],"store":`+store+`}`)
			w := Serve(t, Get(), h)
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("got %d, %s", w.Code, w.Header().Get("Content-Type"))
			}
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestDenialInTheClientsFormat(t *testing.T) {
	_, store := NewFake(t, Decides(window.Decision{Limit: 1, RetryAfter: 2 * time.Second}))
	h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1m"}]`, `,"store":`+store))
	for accept, text := range map[string]bool{
		"":                                  false,
		"*/*":                               false,
		"application/json":                  false,
		"application/problem+json":          false,
		"application/json, text/plain":      false,
		"image/png":                         false,
		";;,/,q=":                           false,
		"text/plain":                        true,
		"text/*":                            true,
		"text/html, application/xml":        true,
		"text/html,*/*;q=0.8":               true,
		"application/json;q=0.1, text/html": true,

		// q=0 takes nothing, and the narrowest clause is what counts for a type.
		"text/plain;q=0":                                              false,
		"text/*;q=0":                                                  false,
		"text/plain;q=0, text/html;q=0, */*":                          false,
		"application/json;q=0, text/plain;q=0":                        false,
		"*/*;q=0.1,text/plain;q=0":                                    false,
		"text/html;q=0, */*;q=0.5, text/plain;q=0":                    false,
		"*/*;q=0.5, text/html;q=0.1":                                  false,
		"text/html;q=0.1, */*;q=0.5":                                  false,
		"text/html;q=0.1, text/*;q=0.9, */*;q=0.5":                    true, // text/plain is taken at 0.9
		"text/plain;q=0.1, text/html;q=0.1, */*;q=0.5":                false,
		"text/plain;q=0.1, text/html;q=0.1, text/*, */*;q=0.5":        false,
		"text/*;q=0.1, */*;q=0.5":                                     false,
		"text/*;q=0.6, */*;q=0.5":                                     true,
		"application/*;q=0.6, text/*;q=0.5":                           false,
		"application/*;q=0.4, text/*;q=0.5":                           true,
		"application/json;q=0, */*;q=0.5":                             false, // problem+json is as good as text
		"application/*;q=0, */*;q=0.5":                                true,
		"*/*;q=0":                                                     false,
		"*/*, application/json;q=0.2, application/problem+json;q=0.2": true,
		"Text/Plain":                                                  true,
		"TEXT/*;q=0.5":                                                true,
		"text/plain;q=NaN":                                            false,
		"text/plain;q=-1":                                             false,
		"text/plain;q=0, */*;q=":                                      false,
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8": true, // a browser
	} {
		w := Serve(t, Get("Accept", accept), h)
		wantType, wantBody := "application/problem+json", `{`
		if text {
			wantType, wantBody = "text/plain; charset=utf-8", "Rate limit exceeded. Try again in 2 s.\n"
		}
		if got := w.Header().Get("Content-Type"); got != wantType {
			t.Errorf("Accept %q: got %s, want %s", accept, got, wantType)
		}
		if got := w.Body.String(); !strings.HasPrefix(got, wantBody) {
			t.Errorf("Accept %q: got %s, want %s", accept, got, wantBody)
		}
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "2" {
			t.Errorf("Accept %q: got %d, Retry-After %s, want 429, 2", accept, w.Code, w.Header().Get("Retry-After"))
		}
	}
}

// Several lines of Accept are one list.
func TestDenialByLinesOfAccept(t *testing.T) {
	_, store := NewFake(t, Decides(window.Decision{Limit: 1, RetryAfter: 2 * time.Second}))
	h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1m"}]`, `,"store":`+store))
	if w := Serve(t, Get("Accept", "application/xml", "Accept", "text/html"), h); !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("got %s, want text", w.Header().Get("Content-Type"))
	}
}

// earlier sets fields before the next handler.
type earlier http.Header

func (e earlier) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	maps.Copy(w.Header(), e)
	return next.ServeHTTP(w, r)
}

// What an answer says of its body is not about ours, if an earlier handler had another.
func TestDenialForgetsBody(t *testing.T) {
	const another, other = "another's", "X-Other"
	fields := earlier{other: {another}}
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		fields[name] = []string{another}
	}
	_, denies := NewFake(t, Decides(window.Decision{Limit: 1, RetryAfter: time.Second}))
	denial, _ := New(t, OfZone(t, TwoAnHour, `,"store":`+denies))
	_, isAway := NewFake(t, Away)
	outage, _ := New(t, OfZone(t, TwoAnHour, `,"on_error":"deny","store":`+isAway))
	for status, h := range map[int]caddyhttp.MiddlewareHandler{http.StatusTooManyRequests: denial, http.StatusServiceUnavailable: outage} {
		w, err := TryServe(Get(), fields, h)
		if err != nil || w.Code != status {
			t.Errorf("got %d, %v, want %d", w.Code, err, status)
		}
		for name, values := range w.Header() {
			if (values[0] == another) != (name == other) {
				t.Errorf("%d: the answer has %s: %s", status, name, values[0])
			}
		}
	}
}

func TestStatus(t *testing.T) {
	_, store := NewFake(t, Decides(window.Decision{Limit: 1, RetryAfter: time.Second}))
	h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1m"}]`, `,"status":503,"store":`+store))
	for _, accept := range []string{"", "text/plain"} {
		if w := Serve(t, Get("Accept", accept), h); w.Code != http.StatusServiceUnavailable {
			t.Errorf("Accept %q: got %d, want 503", accept, w.Code)
		}
	}
	if body := Serve(t, Get(), h).Body.String(); !strings.Contains(body, `"status":503`) {
		t.Errorf("got %s, want status 503 in it", body)
	}
}

func TestDenialLog(t *testing.T) {
	const secret = "s3cret"
	zone := `"key":"{http.request.header.X-Key}","limits":[{"max":0,"window":"1m"}]`
	for _, c := range []struct{ name, more string }{
		{"without key", ``},
		{"with key", `,"log_key":true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, store := NewFake(t, Decides(window.Decision{RetryAfter: 3 * time.Second}))
			h, _, logs := NewObserved(t, zap.DebugLevel, OfZone(t, zone, c.more+`,"store":`+store))
			Serve(t, Get("X-Key", secret), h)
			entries := logs.TakeAll()
			if len(entries) != 1 || entries[0].Level != zap.DebugLevel || entries[0].Message != "rate limit exceeded" {
				t.Fatalf("got %v, want one line at debug", entries)
			}
			want := map[string]any{"zone": ZoneName(t), "retry_after": int64(3), "policies": []any{ZoneName(t)}}
			if c.more != "" {
				want["key"] = secret
			}
			if got := entries[0].ContextMap(); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			h, _, logs = NewObserved(t, zap.InfoLevel, OfZone(t, zone, c.more+`,"store":`+store))
			Serve(t, Get("X-Key", secret), h)
			if entries := logs.TakeAll(); len(entries) > 0 {
				t.Errorf("at info: got %v, want nothing", entries)
			}
		})
	}
}

// With several zones, the key is that of the zone that denies longest.
func TestDenialLogOfSeveralZones(t *testing.T) {
	_, store := NewFake(t, Decides(
		window.Decision{RetryAfter: time.Second}, window.Decision{RetryAfter: time.Minute}, window.Decision{Allowed: true}))
	zone := func(name string) string {
		return `{"name":"` + name + `","key":"key_` + name + `","limits":[{"max":1,"window":"1m"}]}`
	}
	h, _, logs := NewObserved(t, zap.DebugLevel, `{"zones":[`+zone("a")+`,`+zone("b")+`,`+zone("c")+`],"log_key":true,"store":`+store+`}`)
	Serve(t, Get(), h)
	want := map[string]any{"zone": "b", "retry_after": int64(60), "policies": []any{"a", "b"}, "key": "key_b"}
	if got := logs.All()[0].ContextMap(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Retry-After comes later by up to the jitter of the handler.
func TestRetryAfterWithJitter(t *testing.T) {
	for jitter, latest := range map[string]int{"0": 3600, "0.5": 5400} {
		_, store := NewFake(t, Decides(window.Decision{Limit: 1, RetryAfter: time.Hour}))
		h, _ := New(t, OfZone(t, TwoAnHour, `,"jitter":`+jitter+`,"store":`+store))
		different := make(map[int]bool)
		for range 100 {
			n, err := strconv.Atoi(Serve(t, Get(), h).Header().Get("Retry-After"))
			if err != nil || n < 3600 || n > latest {
				t.Fatalf("jitter %s: got %d, %v, want from 3600 to %d", jitter, n, err, latest)
			}
			different[n] = true
		}
		if (len(different) > 1) != (latest > 3600) {
			t.Errorf("jitter %s: %d different values", jitter, len(different))
		}
	}
}
