package tee

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/encode"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode/gzip"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/encode/zstd"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakellm"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// steps are what happens to an answer, in order.
type steps []string

func (e *steps) add(format string, args ...any) { *e = append(*e, fmt.Sprintf(format, args...)) }

// traced is a ResponseWriter that notes what reaches it.
type traced struct {
	*httptest.ResponseRecorder
	steps *steps
	fails bool
}

func (w traced) WriteHeader(status int) {
	w.steps.add("status %d", status)
	w.ResponseRecorder.WriteHeader(status)
}

func (w traced) Write(p []byte) (int, error) {
	w.steps.add("write %s", p)
	if w.fails {
		return 1, errors.New("the client is gone")
	}
	return len(p), nil
}

func (w traced) Flush() {
	w.steps.add("flush")
}

func (w traced) ReadFrom(r io.Reader) (int64, error) {
	w.steps.add("read from")
	return io.Copy(w.ResponseRecorder, r)
}

// shown is the copy of a body.
type shown struct{ steps *steps }

func (s shown) Write(p []byte) (int, error) {
	s.steps.add("show %s", p)
	return 0, errors.New("is ignored")
}

// What is written reaches the client before it is shown, and a flush passes at once. The
// status is known once, before it is sent, however it is sent.
func TestAnswerOrder(t *testing.T) {
	for _, test := range []struct {
		name, method string
		silent       bool // the body is not read
		fails        bool
		handle       func(a *Writer)
		want         string
		status       int
	}{
		{"write", "GET", false, false, func(a *Writer) { io.WriteString(a, "a"); a.Flush(); io.WriteString(a, "b") }, "begin 200, write a, show a, flush, write b, show b", 200},
		{"status", "GET", false, false, func(a *Writer) { a.WriteHeader(404); io.WriteString(a, "a"); a.WriteHeader(500) }, "begin 404, status 404, write a, show a, status 500", 404},
		{"flush", "GET", false, false, func(a *Writer) { http.NewResponseController(a).Flush(); io.WriteString(a, "a") }, "begin 200, flush, write a, show a", 200},
		{"hints", "GET", false, false, func(a *Writer) { a.WriteHeader(103); a.WriteHeader(100); a.WriteHeader(201) }, "status 103, status 100, begin 201, status 201", 201},
		{"upgrade", "GET", false, false, func(a *Writer) { a.WriteHeader(101); io.WriteString(a, "a") }, "begin 101, status 101, write a", 101},
		{"tunnel", "CONNECT", false, false, func(a *Writer) { a.WriteHeader(200); io.WriteString(a, "a") }, "begin 200, status 200, write a", 200},
		{"tunnel by a flush", "CONNECT", false, false, func(a *Writer) { a.Flush(); io.WriteString(a, "a") }, "begin 200, flush, write a", 200},
		{"tunnel refused", "CONNECT", false, false, func(a *Writer) { a.WriteHeader(403); io.WriteString(a, "a") }, "begin 403, status 403, write a, show a", 403},
		{"copy", "GET", false, false, func(a *Writer) { io.Copy(a, strings.NewReader("abc")) }, "begin 200, write abc, show abc", 200},
		{"copy, silent", "GET", true, false, func(a *Writer) { io.Copy(a, struct{ io.Reader }{strings.NewReader("abc")}) }, "begin 200, read from", 200},
		{"silent", "GET", true, false, func(a *Writer) { io.WriteString(a, "a") }, "begin 200, write a", 200},
		{"client gone", "GET", false, true, func(a *Writer) { io.WriteString(a, "abc") }, "begin 200, write abc, show a", 200},
		{"nothing", "GET", false, false, func(*Writer) {}, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var e steps
			a := New(traced{httptest.NewRecorder(), &e, test.fails}, httptest.NewRequest(test.method, "http://x/", nil), func(status int, _ http.Header) io.Writer {
				e.add("begin %d", status)
				if test.silent {
					return nil
				}
				return shown{&e}
			})
			test.handle(a)
			if got := strings.Join(e, ", "); got != test.want || a.Status != test.status {
				t.Errorf("%s, status %d\nwant %s, status %d", got, a.Status, test.want, test.status)
			}
			want := Complete
			if test.fails {
				want = Left
			}
			if got := a.End(true, nil); got != want {
				t.Errorf("ended %d, want %d", got, want)
			}
		})
	}
}

// watched is a handler whose answers are read. It sends what they cost.
type watched struct {
	next    http.Handler
	source  *usage.Source
	results chan usage.Result
}

func (h watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var reader *usage.Reader
	a := New(w, r, func(_ int, header http.Header) io.Writer {
		reader = h.source.NewReader(header.Get("Content-Type"), header.Get("Content-Encoding"))
		return reader
	})
	ended := false
	defer func() {
		whole := a.End(ended, nil) == Complete
		h.results <- reader.Done(whole)
	}()
	h.next.ServeHTTP(a, r)
	ended = true
}

// watch serves a handler over HTTP/1.1 or HTTP/2.
func watch(t *testing.T, http2 bool, next http.Handler, source *usage.Source) (*httptest.Server, chan usage.Result) {
	t.Helper()
	results := make(chan usage.Result, 10)
	server := httptest.NewUnstartedServer(watched{next, source, results})
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, results
}

// Each event is at the client before the handler goes on: the handler waits for the
// client after each.
func TestAnswerStreams(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		got := make(chan bool)
		server, results := watch(t, http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if r.ProtoMajor == 2 != http2 {
				t.Errorf("the protocol is %s", r.Proto)
			}
			for n := range 20 {
				fmt.Fprintf(w, "data: {\"usage\":{\"prompt_tokens\":%d}}\n\n", n)
				http.NewResponseController(w).Flush()
				<-got
			}
			io.WriteString(w, "data: [DONE]\n\n")
		}), usage.OpenAI())
		answer, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(answer.Body)
		for n := range 20 {
			line, err := lines.ReadString('\n')
			if want := fmt.Sprintf("data: {\"usage\":{\"prompt_tokens\":%d}}\n", n); line != want || err != nil {
				t.Fatalf("%q, %v, want %q", line, err, want)
			}
			lines.ReadString('\n')
			got <- true
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if result := <-results; result != (usage.Result{Input: 19}) {
			t.Errorf("%+v", result)
		}
	}
}

// A back end that is cut off, and a client that hangs up, leave an answer without final
// figures. Both end.
func TestAnswerAborted(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, coding := range []string{"", "gzip", "zstd"} {
			server, results := watch(t, http2, fakellm.Handler(0), usage.Anthropic())
			for query, hangUp := range map[string]bool{"abort=4": false, "pace=1h": true} {
				ctx, cancel := context.WithCancel(t.Context())
				r, _ := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/messages?coding="+coding+"&"+query, strings.NewReader(`{"stream":true}`))
				r.Header.Set("Accept-Encoding", "identity")
				answer, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Read(make([]byte, 1))
				if hangUp {
					cancel()
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				cancel()
				if result := <-results; result.Missing != usage.Aborted {
					t.Errorf("HTTP/2 %v, %s, %s: %+v", http2, coding, query, result)
				}
			}
		}
	}
}

// 103 reaches the client before the answer.
func TestAnswerEarlyHints(t *testing.T) {
	server, results := watch(t, false, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"usage":{"prompt_tokens":1}}`)
	}), usage.OpenAI())
	var early []int
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		early = append(early, code)
		return nil
	}})
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if result := <-results; !slices.Equal(early, []int{103}) || answer.StatusCode != 200 || result.Input != 1 {
		t.Errorf("%v, %d, %+v", early, answer.StatusCode, result)
	}
}

// A connection that is hijacked works both ways, and is not read.
func TestAnswerHijack(t *testing.T) {
	for _, sends101 := range []bool{true, false} {
		server, results := watch(t, false, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Upgrade", "echo")
			w.Header().Set("Connection", "Upgrade")
			if sends101 {
				w.WriteHeader(http.StatusSwitchingProtocols)
			}
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if !sends101 {
				io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			}
			line, _ := rw.ReadString('\n')
			io.WriteString(rw, line)
			rw.Flush()
		}), usage.OpenAI())
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n{\"usage\":{\"prompt_tokens\":1}}\n")
		text, _ := io.ReadAll(conn)
		conn.Close()
		if !bytes.HasPrefix(text, []byte("HTTP/1.1 101 ")) || !bytes.HasSuffix(text, []byte("\r\n\r\n{\"usage\":{\"prompt_tokens\":1}}\n")) {
			t.Errorf("%q", text)
		}
		if result := <-results; result.Input != 0 || result.Missing == "" {
			t.Errorf("%+v", result)
		}
	}
}

// encodes wraps a handler in Caddy's encode.
func encodes(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	base, err := caddy.ProvisionContext(&caddy.Config{Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(base)
	t.Cleanup(cancel)
	module, err := ctx.LoadModuleByID("http.handlers.encode", []byte(`{"encodings":{"gzip":{},"zstd":{}},"minimum_length":1}`))
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
		err := module.(*encode.Encode).ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			next.ServeHTTP(w, r)
			return nil
		}))
		if err != nil {
			t.Error(err)
		}
	})
}

// encode may be on either side: inside, the copy is compressed and says so; outside, it
// is not.
func TestAnswerEncodeOnEitherSide(t *testing.T) {
	want := usage.Result{Input: 400, Cached: 40, Output: 300}
	for _, inside := range []bool{true, false} {
		for _, coding := range []string{"gzip", "zstd"} {
			for _, body := range []string{`{}`, `{"stream":true}`} {
				results := make(chan usage.Result, 1)
				handler := http.Handler(watched{fakellm.Handler(0), usage.Anthropic(), results})
				if inside {
					handler = watched{encodes(t, fakellm.Handler(0)), usage.Anthropic(), results}
				} else {
					handler = encodes(t, handler)
				}
				server := httptest.NewServer(handler)
				r, _ := http.NewRequest("POST", server.URL+"/v1/messages?input=400&cached=40&output=300", strings.NewReader(body))
				r.Header.Set("Accept-Encoding", coding)
				answer, err := server.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				server.Close()
				if got := <-results; got != want || answer.Header.Get("Content-Encoding") != coding {
					t.Errorf("inside %v, %s, %s: %+v, %v", inside, coding, body, got, answer.Header)
				}
			}
		}
	}
}

// hijackable is an answer whose connection can be taken over.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// readerFrom is a connection that copies by itself.
type readerFrom struct {
	net.Conn
	copied bool
}

func (c *readerFrom) ReadFrom(r io.Reader) (int64, error) {
	c.copied = true
	return io.Copy(c.Conn, r)
}

// The end of a connection that was taken over is seen, once, and only if it is asked for. The connection copies as before.
func TestClosed(t *testing.T) {
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	inner, closed := &readerFrom{Conn: here}, 0
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	a := New(hijackable{httptest.NewRecorder(), inner}, r, func(int, http.Header) io.Writer { return nil })
	a.Closed = func() { closed++ }
	conn, _, err := a.Hijack()
	if err != nil || !a.Hijacked || a.Status != http.StatusSwitchingProtocols {
		t.Fatalf("%v, hijacked %t, status %d", err, a.Hijacked, a.Status)
	}
	if _, err := io.Copy(conn, struct{ io.Reader }{strings.NewReader("text")}); err != nil || !inner.copied {
		t.Errorf("%v, copied by the connection %t", err, inner.copied)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) || closed != 0 {
		t.Errorf("%v, closed %d times", err, closed)
	}
	for range 2 {
		_ = conn.Close()
	}
	if closed != 1 {
		t.Errorf("closed %d times, want once", closed)
	}

	b := New(hijackable{httptest.NewRecorder(), inner}, r, func(int, http.Header) io.Writer { return nil })
	if conn, _, _ := b.Hijack(); conn != net.Conn(inner) {
		t.Error("a connection is wrapped of which no one wants to see the end")
	}
}
