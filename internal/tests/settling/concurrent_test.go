package settling_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// A WebSocket holds its slot until it closes, whatever carries it, and also where other requests hold theirs until their answers
// begin.
func TestConcurrentWebSocket(t *testing.T) {
	t.Setenv("GODEBUG", "http2xconnect=1") // of Caddy: see TestExtendedConnectOfHTTP2
	backEnd, goOn := newWebSockets(t)
	for _, hold := range []string{"body", "status"} {
		t.Run(hold, func(t *testing.T) {
			s := serveDirectives(t, "memory", fmt.Sprintf(`sliding_window {
		zone sockets {
			key {header.X-Key}
			concurrent 1 {
				hold %s
			}
		}
	}
	reverse_proxy %s`, hold, backEnd))
			client := s.overHTTP1()
			protocols := map[string]func(key string) (*socket, error){"HTTP/1.1": s.dialHTTP1, "HTTP/2": s.dialHTTP2, "HTTP/3": s.dialHTTP3}
			if caddyrun.IsBefore(t, 2, 11, 0) {
				delete(protocols, "HTTP/3") // they refuse it
			}
			for protocol, dial := range protocols {
				t.Run(protocol, func(t *testing.T) {
					status := func() int { return s.status(client, protocol) }
					conn, err := dial(protocol)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.close()
					if got := status(); got != http.StatusTooManyRequests {
						t.Errorf("while it is open: status %d, want 429", got)
					}
					if got := s.status(client, "another"); got != http.StatusBadRequest {
						t.Errorf("another key: status %d, want the back end's", got)
					}
					goOn <- true
					if err := talk(conn, false, 'c', 'b'); err != nil {
						t.Errorf("client: %v", err)
					}
					if got := status(); got != http.StatusTooManyRequests {
						t.Errorf("after much has passed: status %d, want 429", got)
					}
					conn.close()
					caddyrun.Eventually(t, 20*time.Second, "the slot is free", func() bool { return status() == http.StatusBadRequest })
				})
			}
		})
	}
}

// status returns the status of a request of a key.
func (s *secureSite) status(client http.RoundTripper, key string) int {
	s.Helper()
	resp, err := client.RoundTrip(s.request(s.Context(), http.MethodGet, "/", key))
	if err != nil {
		s.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// openStreams is a Caddy that streams answers which never end.
type openStreams struct {
	*testing.T
	*caddyrun.Process
	address, store, backEnd string
}

func (o *openStreams) config(store string) string {
	return fmt.Sprintf(`{
	admin {admin}
	persist_config off
	grace_period 100ms
	sliding_window {
		store %s
	}
}
http://%s {
	sliding_window {
		zone streams {
			match {
				path /stream
			}
			key all
			concurrent 2 {
				lease 10m
			}
		}
	}
	reverse_proxy %s {
		flush_interval -1
	}
}
`, store, o.address, o.backEnd)
}

func (o *openStreams) load(store string) {
	o.Helper()
	text := strings.ReplaceAll(o.config(store), "{admin}", o.Admin)
	if status, body := o.Tell(o.T, http.MethodPost, "/load", "text/caddyfile", text); status != http.StatusOK {
		o.Fatalf("status %d: %s", status, body)
	}
}

// stream begins an answer that ends with the context, and returns its status.
func (o *openStreams) stream(ctx context.Context) int {
	o.Helper()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/stream", http.NoBody)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return 0
	}
	go func() {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
	return resp.StatusCode
}

// passes reports whether a stream would begin now. It ends at once.
func (o *openStreams) passes() bool {
	ctx, cancel := context.WithCancel(o.Context())
	defer cancel()
	return o.stream(ctx) == http.StatusOK
}

// A reload keeps what open answers hold, also one that takes their store away. It is free once they end, and at once when Caddy
// ends, whether a configuration uses the store or not: the lease is far longer than the test.
func TestConcurrentReloadAndExit(t *testing.T) {
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			return
		}
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(backEnd.Close)
	redis := "redis redis://" + redistest.Start(t).Addr
	start := func(t *testing.T) *openStreams {
		o := &openStreams{T: t, address: caddyrun.FreeAddress(t), backEnd: backEnd.Listener.Addr().String()}
		o.Process = caddyrun.Start(t, o.config(redis), o.address)
		return o
	}
	other := start(t)
	for name, end := range map[string]func(o *openStreams, cancel func()){
		"answers end":         func(_ *openStreams, cancel func()) { cancel() },
		"reload, answers end": func(o *openStreams, cancel func()) { o.load(redis + " {\n\t\t\ttimeout 1s\n\t\t}"); cancel() },
		"another store, answers end": func(o *openStreams, cancel func()) {
			o.load("memory")
			time.Sleep(6 * time.Second) // longer than a store lingers that holds nothing
			cancel()
		},
		"exit":                               func(o *openStreams, _ func()) { o.End(o.T) },
		"another store, exit":                func(o *openStreams, _ func()) { o.load("memory"); o.End(o.T) },
		"another store, and back, then exit": func(o *openStreams, _ func()) { o.load("memory"); o.load(redis); o.End(o.T) },
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 2 {
				if status := o.stream(ctx); status != http.StatusOK {
					t.Fatalf("a stream has status %d", status)
				}
			}
			if other.passes() {
				t.Error("a third stream passes")
			}
			end(o, func() {
				if other.passes() {
					t.Error("a third stream passes after the reload")
				}
				cancel()
			})
			caddyrun.Eventually(t, 20*time.Second, "both slots are free", func() bool {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				return other.stream(ctx) == http.StatusOK && other.stream(ctx) == http.StatusOK
			})
			caddyrun.Eventually(t, 20*time.Second, "those of the test are free", other.passes)
		})
	}
}
