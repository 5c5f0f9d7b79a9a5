package settling_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// A reload keeps the slots of WebSockets and of event streams, over HTTP/1.1 and HTTP/2, as long as they are open. Slots of
// WebSockets that reverse_proxy closes with the reload are free then.
func TestConcurrentOverAReload(t *testing.T) {
	t.Setenv("GODEBUG", "http2xconnect=1") // of Caddy: see TestExtendedConnectOfHTTP2
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: begun\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/socket":
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(conn, rw)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(backEnd.Close)
	for name, delay := range map[string]string{"kept": "stream_close_delay 5m", "closed": ""} {
		t.Run(name, func(t *testing.T) {
			s := serveDirectives(t, "memory", fmt.Sprintf(`sliding_window {
		zone open {
			key {header.X-Key}
			concurrent 1
		}
	}
	reverse_proxy %s {
		%s
	}`, backEnd.Listener.Addr(), delay))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			conns := make(map[string]*socket)
			for protocol, dial := range map[string]func(key string) (*socket, error){"HTTP/1.1": s.dialHTTP1, "HTTP/2": s.dialHTTP2} {
				var err error
				if conns[protocol], err = dial("socket " + protocol); err != nil {
					t.Fatal(err)
				}
				defer conns[protocol].close()
				client := s.overHTTP1()
				if protocol == "HTTP/2" {
					client = s.overHTTP2()
				}
				stream, err := client.RoundTrip(s.request(ctx, http.MethodGet, "/events", "events "+protocol))
				if err != nil || stream.StatusCode != http.StatusOK {
					t.Fatalf("%v, %v", stream, err)
				}
				defer func() { _ = stream.Body.Close() }()
			}
			s.reload()
			client := s.overHTTP1()
			isFree := func(key string) bool { return s.status(client, key) == http.StatusBadRequest }
			wantFree := func(key string) {
				t.Helper()
				caddyrun.Eventually(t, 20*time.Second, "the slot of "+key+" is free", func() bool { return isFree(key) })
			}
			for protocol, conn := range conns {
				if isFree("events " + protocol) {
					t.Errorf("%s: the slot of the event stream is free after a reload", protocol)
				}
				if delay != "" {
					if isFree("socket " + protocol) {
						t.Errorf("%s: the slot of the WebSocket is free after a reload", protocol)
					}
					echo := make([]byte, 5)
					_, _ = io.WriteString(conn, "hello")
					if _, err := io.ReadFull(conn, echo); err != nil || string(echo) != "hello" {
						t.Errorf("%s: the WebSocket answers %q, %v", protocol, echo, err)
					}
					conn.close()
				}
				wantFree("socket " + protocol)
			}
			cancel()
			for protocol := range conns {
				wantFree("events " + protocol)
			}
		})
	}
}
