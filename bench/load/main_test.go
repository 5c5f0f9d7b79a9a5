package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nServer: Caddy\r\nContent-Length: 2\r\n\r\n"
	for _, c := range []struct {
		name, answer string
		status, size int
		failed       bool
	}{
		{"whole", head + "ok", 200, len(head) + 2, false},
		{"without its body", head, 200, len(head) + 2, false},
		{"cut in the head", head[:len(head)-1], 0, 0, false},
		{"nothing", "", 0, 0, false},
		{"no length", "HTTP/1.1 200 OK\r\nServer: Caddy\r\n\r\n", 200, 0, true},
		{"no length that is a number", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", 200, 0, true},
		{"not HTTP/1.1", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, 0, true},
	} {
		status, size, err := parse([]byte(c.answer))
		if (err != nil) != c.failed || !c.failed && (status != c.status || size != c.size) {
			t.Errorf("%s: status %d, size %d, error %v; want %d, %d, %v", c.name, status, size, err, c.status, c.size, c.failed)
		}
	}
}

func TestKeyOfRequest(t *testing.T) {
	r := newRequest("host:1")
	for n, want := range map[int]string{0: "0000000", 42: "0000042", 4999999: "4999999"} {
		r.setKey(n)
		if !strings.Contains(string(r.text), "\r\nX-Key: "+want+"\r\n\r\n") {
			t.Errorf("key %d: %q", n, r.text)
		}
	}
}

// What is counted is what the server saw, but for what was under way at the end.
func TestRun(t *testing.T) {
	var mu sync.Mutex
	seen, keys := int64(0), make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen++
		keys[r.Header.Get("X-Key")] = true
		if seen == 1 {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	report, err := run(server.Listener.Addr().String(), 3, 5, 200*time.Millisecond, 200)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if report.Requests == 0 || report.Requests > seen || report.Requests < seen-2*3 || report.Others != 1 || report.Seconds < 0.2 {
		t.Errorf("got %+v, the server saw %d", report, seen)
	}
	if len(keys) > 5 {
		t.Errorf("the server saw %d keys of 5", len(keys))
	}
}
