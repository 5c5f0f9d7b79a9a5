package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// slowBackend answers each request once it is told to.
type slowBackend struct {
	begun   chan struct{}
	goOn    sync.Map // channels, by path
	opened  int
	address string
}

func newSlowBackend(t *testing.T) *slowBackend {
	b := &slowBackend{begun: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		goOn, _ := b.goOn.Load(r.URL.Path)
		_, _ = io.WriteString(w, "begun ")
		_ = http.NewResponseController(w).Flush()
		b.begun <- struct{}{}
		<-goOn.(chan struct{})
	}))
	t.Cleanup(server.Close)
	b.address = server.Listener.Addr().String()
	return b
}

// open opens n requests that the back end has begun to answer, and returns what ends them all.
func (b *slowBackend) open(t *testing.T, r *recipe, n int, header ...string) (end func()) {
	t.Helper()
	b.opened++
	path, goOn, ended := fmt.Sprintf("/%d", b.opened), make(chan struct{}), make(chan int, n)
	b.goOn.Store(path, goOn)
	for range n {
		req, err := http.NewRequest(http.MethodGet, "http://"+r.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		go func() {
			resp, err := r.client.Do(req)
			if err != nil {
				ended <- 0
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			ended <- resp.StatusCode
		}()
		select {
		case <-b.begun:
		case status := <-ended:
			t.Fatalf("status %d, want a request that is open", status)
		}
	}
	return func() {
		t.Helper()
		close(goOn)
		for range n {
			if status := <-ended; status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		}
	}
}

// The first Caddyfiles of docs/concurrency.md do what the text says.
func TestConcurrencyDocument(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		b := newSlowBackend(t)
		r := serveBlock(t, "docs/concurrency.md", "Streams of a language model, per key", 1,
			"localhost:6379", redistest.Start(t).Addr, "localhost:9000", b.address)
		if a := r.ask(http.MethodGet, "/"); a.Status != http.StatusUnauthorized {
			t.Errorf("without a key: status %d", a.Status)
		}
		end := b.open(t, r, 4, "Authorization", "Bearer anna")
		a := r.ask(http.MethodGet, "/", "Authorization", "Bearer anna")
		if a.Status != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "" || !strings.Contains(a.Body, `["streams:concurrent"]`) {
			t.Errorf("the fifth: %d, Retry-After %q, %s", a.Status, a.Header.Get("Retry-After"), a.Body)
		}
		if fields := a.Header.Get("RateLimit"); !strings.Contains(fields, `"streams";r=56;`) || !strings.Contains(fields, `"streams:concurrent";r=0`) {
			t.Errorf("RateLimit: %s", fields)
		}
		b.open(t, r, 1, "Authorization", "Bearer ben")() // of another key
		end()
		b.open(t, r, 4, "Authorization", "Bearer anna")()
	})
	t.Run("workers", func(t *testing.T) {
		b := newSlowBackend(t)
		r := serveBlock(t, "docs/concurrency.md", "A back end with four workers", 1, "localhost:9000", b.address)
		anna := b.open(t, r, 2, "X-Forwarded-For", "192.0.2.1")
		if a := r.ask(http.MethodGet, "/", "X-Forwarded-For", "192.0.2.1"); a.Status != http.StatusTooManyRequests {
			t.Errorf("the third of a client: status %d", a.Status)
		}
		ben := b.open(t, r, 2, "X-Forwarded-For", "192.0.2.2")
		if a := r.ask(http.MethodGet, "/", "X-Forwarded-For", "192.0.2.3"); a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") != "" {
			t.Errorf("all workers are busy: status %d, Retry-After %q", a.Status, a.Header.Get("Retry-After"))
		}
		anna()
		b.open(t, r, 2, "X-Forwarded-For", "192.0.2.3")()
		ben()
	})
	t.Run("uploads", func(t *testing.T) {
		serveBlock(t, "docs/concurrency.md", "WebSockets, downloads and uploads", 1)
	})
	t.Run("with load", func(t *testing.T) {
		serveBlock(t, "docs/concurrency.md", "A back end with four workers", 2)
	})
}
