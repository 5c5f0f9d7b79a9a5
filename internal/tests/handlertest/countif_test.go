package handlertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Which answers count by `count_if status 401 5xx`, however they are given.
func TestCountIf(t *testing.T) {
	h, _ := New(t, OfZone(t, `"key":"{http.request.header.X-Key}","limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401,5],"headers":{"X-Not":null}}`, ""))
	status := func(code int) caddyhttp.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(code)
			return nil
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i, c := range []struct {
		name   string
		next   caddyhttp.HandlerFunc
		counts bool
	}{
		{"a status that counts", status(401), true},
		{"its class", status(502), true},
		{"another status", status(403), false},
		{"nothing", func(http.ResponseWriter, *http.Request) error { return nil }, false},
		{"early hints before it", func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(103)
			w.WriteHeader(401)
			return nil
		}, true},
		{"an upgrade", status(101), false},
		{"a second status", func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(200)
			w.WriteHeader(401)
			return nil
		}, false},
		{"a body", func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write([]byte("hello"))
			return errors.Join(err, caddyhttp.Error(500, nil))
		}, false},
		{"a copied body", func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("hello"))
			return errors.Join(err, caddyhttp.Error(500, nil))
		}, false},
		{"a flush", func(w http.ResponseWriter, _ *http.Request) error {
			return errors.Join(http.NewResponseController(w).Flush(), caddyhttp.Error(500, nil))
		}, false},
		{"an error that counts", func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(401, nil) }, true},
		{"a wrapped one", func(http.ResponseWriter, *http.Request) error {
			return fmt.Errorf("wrapped: %w", caddyhttp.Error(404, nil))
		}, false},
		{"an error without a status", func(http.ResponseWriter, *http.Request) error { return io.EOF }, true},
		{"a panic", func(http.ResponseWriter, *http.Request) error { panic("no reason") }, true},
		{"a panic after the status", func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(200)
			panic("no reason")
		}, false},
		{"a field of the header", func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("X-Not", "yes")
			w.WriteHeader(401)
			return nil
		}, false},
	} {
		key := fmt.Sprint(i)
		r := Get("X-Key", key)
		_ = AnswerWith(h, httptest.NewRecorder(), r, c.next)
		w := httptest.NewRecorder()
		_ = AnswerWith(h, w, Get("X-Key", key), status(204))
		if counted := w.Code == http.StatusTooManyRequests; counted != c.counts {
			t.Errorf("%s counts: %v, want %v", c.name, counted, c.counts)
		}
	}
	// A client that hangs up before the status is known does not choose what counts.
	for key, next := range map[string]caddyhttp.HandlerFunc{
		"returns": func(http.ResponseWriter, *http.Request) error { return nil },
		"fails":   func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(404, nil) },
		"panics":  func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) },
	} {
		_ = AnswerWith(h, httptest.NewRecorder(), Get("X-Key", key).WithContext(gone), next)
		w := httptest.NewRecorder()
		if _ = AnswerWith(h, w, Get("X-Key", key), status(204)); w.Code != http.StatusTooManyRequests {
			t.Errorf("after a client hung up, and its handler %s: status %d, want 429", key, w.Code)
		}
	}
}

// Denials by this module do not count in a zone outside of the one that denies.
func TestCountIfOfDenials(t *testing.T) {
	outer, _ := New(t, `{"zones":[{"name":"TestCountIfOfDenials.outer","limits":[{"max":3,"window":"1h"}],"count_if":{"status_code":[4]}}]}`)
	inner, _ := New(t, `{"zones":[{"name":"TestCountIfOfDenials.inner","limits":[{"max":1,"window":"1h"}]}]}`)
	for i := range 10 {
		w := Serve(t, Get(), outer, inner)
		if want := `"TestCountIfOfDenials.outer";r=2;`; !strings.HasPrefix(w.Header().Values("RateLimit")[0], want) {
			t.Errorf("request %d: RateLimit %q, want %s", i, w.Header().Values("RateLimit"), want)
		}
	}
}

// A hijacked connection is an upgrade, and works.
func TestCountIfHijacks(t *testing.T) {
	h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}`, ""))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = AnswerWith(h, w, r, func(w http.ResponseWriter, _ *http.Request) error {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return err
			}
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello")
			_ = rw.Flush()
			return conn.Close()
		})
	}))
	defer server.Close()
	for i := range 3 {
		req, _ := http.NewRequest(http.MethodGet, server.URL, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := bufio.NewReader(resp.Body).ReadString(0)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusSwitchingProtocols || text != "hello" {
			t.Errorf("request %d: %d %q, want 101 and hello", i, resp.StatusCode, text)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// A full memory store with a limit of 1 keeps no key whose unit was given back: 20,000 clients log in
// rightly, and 1,000 new ones find room.
func TestCountIfInAFullStore(t *testing.T) {
	h, _ := New(t, fmt.Sprintf(`{"zones":[{"name":%q,"key":"{http.request.header.X-Key}","limits":[{"max":1,"window":"15m"}],"count_if":{"status_code":[401]}}],
		"store":{"module":"memory","max_keys":2000}}`, ZoneName(t)))
	answer := func(key string, code int) int {
		w := httptest.NewRecorder()
		_ = AnswerWith(h, w, Get("X-Key", key), func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(code)
			return nil
		})
		return w.Code
	}
	for i := range 20_000 {
		if code := answer(fmt.Sprint("right ", i), 200); code != 200 {
			t.Fatalf("right log-in %d: status %d", i, code)
		}
	}
	for i := range 1_000 {
		if code := answer(fmt.Sprint("new ", i), 401); code != 401 {
			t.Fatalf("new client %d: status %d, want 401", i, code)
		}
	}
}

// Only requests that a zone with count_if or settle has charged get another response writer.
func TestCountIfOnlyWhereCharged(t *testing.T) {
	const zone = `{"name":"%s","match":[{"path":["/login"]}],"limits":[{"max":1,"window":"1h"}]%s}`
	for _, c := range []struct {
		more, path string
		wrapped    bool
	}{
		{``, "/login", false},
		{`,"count_if":{"status_code":[401]}`, "/login", true},
		{`,"count_if":{"status_code":[401]}`, "/else", false},
		{`,"settle":{"usage":"openai"}`, "/login", true},
		{`,"settle":{"usage":"openai"}`, "/else", false},
	} {
		h, _ := New(t, fmt.Sprintf(`{"zones":[`+zone+`]}`, ZoneName(t)+fmt.Sprint(len(c.more)), c.more))
		r, recorder := httptest.NewRequest(http.MethodGet, c.path, bytes.NewReader(nil)), httptest.NewRecorder()
		err := AnswerWith(h, recorder, r, func(w http.ResponseWriter, _ *http.Request) error {
			if wrapped := w != http.ResponseWriter(recorder); wrapped != c.wrapped {
				t.Errorf("%s with %q: wrapped %v, want %v", c.path, c.more, wrapped, c.wrapped)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
