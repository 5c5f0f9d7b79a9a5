package settling_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

const (
	rounds = 20
	// bulk is what each side of a WebSocket sends while it receives as much: more than all buffers hold.
	bulk = 8 << 20
)

// usageText is what an answer would tell its cost by, were it read.
const usageText = "data: {\"usage\":{\"prompt_tokens\":7}}\n\n"

// talk is what both sides of a WebSocket do, each with lines and a byte of its own: they send lines in
// turn, then much at once, and a usage. The one that is first says at last that all has come.
func talk(rw io.ReadWriter, first bool, mine, theirs byte) error {
	lines := bufio.NewReader(rw)
	for n := range rounds {
		for turn := range 2 {
			if (turn == 0) == first {
				if _, err := fmt.Fprintf(rw, "%c %d\n", mine, n); err != nil {
					return err
				}
				continue
			}
			line, err := lines.ReadString('\n')
			if want := fmt.Sprintf("%c %d\n", theirs, n); line != want || err != nil {
				return fmt.Errorf("%q came, %w, want %q", line, err, want)
			}
		}
	}
	sent := make(chan error, 1)
	go func() {
		_, err := rw.Write(append(bytes.Repeat([]byte{mine}, bulk), usageText...))
		sent <- err
	}()
	got := make([]byte, bulk+len(usageText))
	if _, err := io.ReadFull(lines, got); err != nil {
		return err
	}
	if n := bytes.Count(got[:bulk], []byte{theirs}); n != bulk || string(got[bulk:]) != usageText {
		return fmt.Errorf("of %d bytes %d came as they were sent, and then %q", bulk, n, got[bulk:])
	}
	if err := <-sent; err != nil {
		return err
	}
	if first {
		_, err := io.WriteString(rw, "end\n")
		return err
	}
	if line, err := lines.ReadString('\n'); line != "end\n" {
		return fmt.Errorf("%q came, %w, want end", line, err)
	}
	return nil
}

// newWebSockets is a back end that upgrades connections, lets go on when it is told to, and talks first.
func newWebSockets(t *testing.T) (address string, goOn chan<- bool) {
	proceed := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Type: text/event-stream\r\n\r\n")
		_ = rw.Flush()
		<-proceed
		if err := talk(struct {
			io.Reader
			io.Writer
		}{rw, conn}, true, 'b', 'c'); err != nil {
			t.Errorf("back end: %v", err)
		}
		_, _ = io.Copy(io.Discard, rw) // until the client hangs up
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), proceed
}

// socket is a client's side of a WebSocket.
type socket struct {
	io.Reader
	io.Writer
	close func()
}

// dialHTTP1 upgrades a connection.
func (s *secureSite) dialHTTP1(key string) (*socket, error) {
	conn, err := tls.Dial("tcp", s.address, s.tls("http/1.1"))
	if err != nil {
		return nil, err
	}
	req := s.request(s.Context(), http.MethodGet, "/socket", key)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = errors.New(resp.Status)
	}
	return &socket{r, conn, func() { _ = conn.Close() }}, err
}

// dial opens a stream with an extended CONNECT: RFC 8441 over HTTP/2, RFC 9220 over HTTP/3.
func (s *secureSite) dial(client http.RoundTripper, key string, mark func(*http.Request)) (*socket, error) {
	body, w := io.Pipe()
	ctx, cancel := context.WithCancel(s.Context())
	req := s.request(ctx, http.MethodConnect, "/socket", key)
	req.Body, req.ContentLength = body, -1
	mark(req)
	resp, err := client.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	end := func() {
		_ = w.Close()
		_ = resp.Body.Close()
		cancel()
	}
	if resp.StatusCode != http.StatusOK {
		end()
		return nil, errors.New(resp.Status)
	}
	return &socket{resp.Body, w, end}, nil
}

func (s *secureSite) dialHTTP2(key string) (*socket, error) {
	return s.dial(s.overHTTP2(), key, func(r *http.Request) { r.Header.Set(":protocol", "websocket") })
}

func (s *secureSite) dialHTTP3(key string) (*socket, error) {
	return s.dial(s.overHTTP3(), key, func(r *http.Request) { r.Proto = "websocket" })
}

// A WebSocket passes both ways at once, whatever carries it. Its units are settled when it begins: those of
// settle as of an answer that does not tell, those of count_if by its status. What passes is not read, also
// where the request's body would be.
func TestWebSocket(t *testing.T) {
	t.Setenv("GODEBUG", "http2xconnect=1") // of Caddy: see TestExtendedConnectOfHTTP2
	backEnd, goOn := newWebSockets(t)
	for name, c := range map[string]struct {
		settle, countIf  string
		tokens, failures int
	}{
		"kept":     {"settle {\n\t\t\t\tusage openai\n\t\t\t\treserve_json max_tokens\n\t\t\t}", "status 101 200", 900, 9},
		"refunded": {"settle {\n\t\t\t\tjson usage.prompt_tokens\n\t\t\t\ton_missing refund\n\t\t\t}", "status 4xx", 1000, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSecurely(t, c.settle, c.countIf, backEnd)
			client := s.overHTTP1()
			protocols := map[string]func(key string) (*socket, error){"HTTP/1.1": s.dialHTTP1, "HTTP/2": s.dialHTTP2, "HTTP/3": s.dialHTTP3}
			if caddyrun.IsBefore(t, 2, 11, 0) {
				delete(protocols, "HTTP/3") // they refuse it
			}
			for protocol, dial := range protocols {
				t.Run(protocol, func(t *testing.T) {
					conn, err := dial(protocol)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.close()
					s.wantLeft(client, protocol, c.tokens, c.failures)
					goOn <- true
					talked := make(chan error, 1)
					go func() { talked <- talk(conn, false, 'c', 'b') }()
					select {
					case err := <-talked:
						if err != nil {
							t.Errorf("client: %v", err)
						}
					case <-time.After(time.Minute):
						t.Error("nothing passes any more")
					}
					s.wantLeft(client, protocol, c.tokens, c.failures)
				})
			}
		})
	}
}
