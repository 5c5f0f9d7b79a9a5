package handlertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// open serves requests that stay open until they are told to end.
type open struct {
	h    caddyhttp.MiddlewareHandler
	next caddyhttp.HandlerFunc // nil: writes nothing
}

// one is a request that is open.
type one struct {
	*httptest.ResponseRecorder
	begun, leave chan struct{}
	done         chan error
}

// begin begins a request, and returns once it has reached the last handler.
func (o *open) begin(r *http.Request) *one {
	it := &one{httptest.NewRecorder(), make(chan struct{}), make(chan struct{}), make(chan error, 1)}
	go func() {
		it.done <- AnswerWith(o.h, it, r, func(w http.ResponseWriter, r *http.Request) error {
			var err error
			if o.next != nil {
				err = o.next(w, r)
			}
			close(it.begun)
			<-it.leave
			return err
		})
	}()
	select {
	case <-it.begun:
	case err := <-it.done:
		it.done <- err
	}
	return it
}

// end ends a request, and returns its error.
func (i *one) end() error {
	close(i.leave)
	return <-i.done
}

// isAdmitted reports whether a request would pass now. It holds nothing afterwards.
func isAdmitted(t *testing.T, h caddyhttp.MiddlewareHandler, header ...string) bool {
	t.Helper()
	return Serve(t, Get(header...), h).Code == http.StatusNoContent
}

func wantPass(t *testing.T, what string, h caddyhttp.MiddlewareHandler, want bool, header ...string) {
	t.Helper()
	if got := isAdmitted(t, h, header...); got != want {
		t.Errorf("%s: a request passes: %t, want %t", what, got, want)
	}
}

const oneAtOnce = `"key":"{http.request.header.X-Key}","concurrent":{"max":1}`

// A request holds a slot until the handlers have returned, whatever they do by then.
func TestConcurrentBody(t *testing.T) {
	for name, next := range map[string]caddyhttp.HandlerFunc{
		"nothing": nil,
		"body": func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, "begun")
			return err
		},
		"flushed": func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusOK)
			return http.NewResponseController(w).Flush()
		},
		"copied": func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.Copy(w, strings.NewReader("begun"))
			return err
		},
		"hints": func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusEarlyHints)
			return nil
		},
		"error": func(http.ResponseWriter, *http.Request) error {
			return caddyhttp.Error(http.StatusBadGateway, errors.New("no back end"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx := New(t, OfZone(t, oneAtOnce, ``))
			times := func() float64 {
				return Metric(t, ctx, "caddy_sliding_window_concurrent_held_seconds", "zone", ZoneName(t))
			}
			o, before := &open{h, next}, times()
			it := o.begin(Get("X-Key", "a"))
			wantPass(t, "while it is open", h, false, "X-Key", "a")
			wantPass(t, "another key", h, true, "X-Key", "b")
			if n := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); n != 1 {
				t.Errorf("%v requests are open, want 1", n)
			}
			_ = it.end()
			wantPass(t, "afterwards", h, true, "X-Key", "a")
			if n := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); n != 0 {
				t.Errorf("%v requests are open, want 0", n)
			}
			if n := times() - before; n != 3 {
				t.Errorf("%v times were measured, want 3", n)
			}
		})
	}
}

// With hold status a slot is free once the final status is known.
func TestConcurrentStatus(t *testing.T) {
	h, ctx := New(t, OfZone(t, `"key":"a","concurrent":{"max":1,"hold":"status"}`, ``))
	for name, c := range map[string]struct {
		next caddyhttp.HandlerFunc
		free bool
	}{
		"nothing": {nil, false},
		"hints":   {func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(http.StatusEarlyHints); return nil }, false},
		"status":  {func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(http.StatusOK); return nil }, true},
		"upgrade": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusSwitchingProtocols)
			return nil
		}, false},
	} {
		it := (&open{h, c.next}).begin(Get())
		wantPass(t, name, h, c.free)
		_ = it.end()
		wantPass(t, name+", afterwards", h, true)
		if n := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); n != 0 {
			t.Errorf("%s: %v requests are open at the end, want 0", name, n)
		}
	}
}

// A panic frees the slot once.
func TestConcurrentPanic(t *testing.T) {
	h, ctx := New(t, OfZone(t, oneAtOnce, ``))
	for range 3 {
		err := AnswerWith(h, httptest.NewRecorder(), Get(), func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) })
		if err == nil {
			t.Fatal("no panic")
		}
	}
	o := &open{h: h}
	it := o.begin(Get())
	wantPass(t, "after panics", h, false)
	_ = it.end()
	if n := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); n != 0 {
		t.Errorf("%v requests are open, want 0", n)
	}
}

// A zone with a limit as well spends on both, or on neither.
func TestConcurrentBesideLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		h, _ := New(t, OfZone(t, oneAtOnce+`,"limits":[{"max":3,"window":"1h"}]`, `,"headers":"both",`+store))
		o := &open{h: h}
		first := o.begin(Get())
		w := Serve(t, Get(), h)
		name := ZoneName(t)
		if w.Code != http.StatusTooManyRequests || w.Header()["Retry-After"] != nil {
			t.Errorf("denied by concurrent: status %d, Retry-After %q", w.Code, w.Header()["Retry-After"])
		}
		for field, want := range map[string]string{
			"RateLimit-Policy":      `"` + name + `";q=3;w=3600, "` + name + `:concurrent";q=1;qu="concurrent-requests"`,
			"X-RateLimit-Limit":     "1",
			"X-RateLimit-Remaining": "0",
			"X-RateLimit-Reset":     "",
		} {
			if got := w.Header().Get(field); got != want {
				t.Errorf("%s: %s, want %s", field, got, want)
			}
		}
		if got := w.Header().Get("RateLimit"); !strings.HasPrefix(got, `"`+name+`";r=2;t=`) || !strings.HasSuffix(got, `, "`+name+`:concurrent";r=0`) {
			t.Errorf("RateLimit: %s", got)
		}
		want := `{"detail":"Too many requests are open at the same time.","status":429,"title":"Concurrency limit exceeded","type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["` + name + `:concurrent"]}`
		if w.Body.String() != want {
			t.Errorf("body %s, want %s", w.Body, want)
		}
		_ = first.end()
		wantPass(t, "the second", h, true)
		last := o.begin(Get()) // the third of three
		w = Serve(t, Get(), h)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || w.Header().Get("X-RateLimit-Limit") != "3" {
			t.Errorf("denied by both: status %d, fields %v", w.Code, w.Header())
		}
		_ = last.end()
		for range 3 { // denied by the limit alone: nothing is held
			if w = Serve(t, Get(), h); w.Code != http.StatusTooManyRequests || !strings.HasSuffix(w.Header().Get("RateLimit"), `:concurrent";r=1`) {
				t.Errorf("denied by the limit: status %d, RateLimit %s", w.Code, w.Header().Get("RateLimit"))
			}
		}
	})
}

// Where all clients share the key none is to blame: the status is 503, unless another one is configured.
func TestConcurrentShared(t *testing.T) {
	for name, c := range map[string]struct {
		key, more string
		status    int
		kind      string
	}{
		"all":        {"all", "", 503, "temporary-reduced-capacity"},
		"configured": {"all", `,"status":420`, 420, "temporary-reduced-capacity"},
		"of clients": {"{http.request.header.X-Key}", "", 429, "quota-exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := New(t, OfZone(t, `"key":"`+c.key+`","concurrent":{"max":0}`, c.more))
			w := Serve(t, Get(), h)
			if w.Code != c.status || w.Header()["Retry-After"] != nil || !strings.Contains(w.Body.String(), "#"+c.kind+`"`) {
				t.Errorf("status %d, fields %v, body %s; want %d and %s", w.Code, w.Header(), w.Body, c.status, c.kind)
			}
			if got, want := w.Header().Get("RateLimit-Policy"), `"`+ZoneName(t)+`";q=0;qu="concurrent-requests"`; got != want {
				t.Errorf("RateLimit-Policy: %s, want %s", got, want)
			}
		})
	}
}

// A request that a later handler denies frees what it held as soon as it is denied, with the handlers around it still there.
func TestConcurrentDeniedLater(t *testing.T) {
	h := two(t, `{"zones":[{"name":"held","key":"a","concurrent":{"max":1}}]}`, `{"zones":[{"name":"later","key":"a","limits":[{"max":0,"window":"1h"}]}]}`)
	it := (&open{h[0], func(w http.ResponseWriter, r *http.Request) error {
		return h[1].ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	}}).begin(Get())
	if it.Code != http.StatusTooManyRequests || strings.Contains(it.Body.String(), "Concurrency") {
		t.Errorf("status %d, body %s", it.Code, it.Body)
	}
	wantPass(t, "denied by the other one, and still there", h[0], true)
	_ = it.end()
}

// two returns handlers of one configuration.
func two(t *testing.T, configs ...string) []caddyhttp.MiddlewareHandler {
	t.Helper()
	h, ctx := New(t, configs[0])
	other, err := Another(ctx, configs[1])
	if err != nil {
		t.Fatal(err)
	}
	return []caddyhttp.MiddlewareHandler{h, other}
}

// Zones of one handler count a request in all of them, or in none.
func TestConcurrentZones(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		h, _ := New(t, `{"zones":[{"name":"wide","key":"a","concurrent":{"max":3}},{"name":"narrow","key":"{http.request.header.X-Key}","concurrent":{"max":1}}],`+store+`}`)
		o := &open{h: h}
		a := o.begin(Get("X-Key", "a"))
		for range 5 {
			wantPass(t, "a second one of a", h, false, "X-Key", "a") // holds nothing in wide
		}
		b := o.begin(Get("X-Key", "b"))
		wantPass(t, "the third", h, true, "X-Key", "c")
		c := o.begin(Get("X-Key", "c"))
		wantPass(t, "the fourth", h, false, "X-Key", "d")
		for _, it := range []*one{a, b, c} {
			_ = it.end()
		}
		wantPass(t, "afterwards", h, true, "X-Key", "a")
	})
}

// Keys are grouped and hashed as those of limits are.
func TestConcurrentKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		store = strings.Replace(store, `"timeout"`, `"hash_keys":["a secret of 16 bytes or more"],"timeout"`, 1)
		h, _ := New(t, OfZone(t, `"concurrent":{"max":1}`, `,`+store))
		from := func(address string) *http.Request {
			r := Get()
			r.RemoteAddr = "[" + address + "]:1"
			return r
		}
		it := (&open{h: h}).begin(from("2001:db8::1"))
		for address, want := range map[string]int{"2001:db8::ffff": http.StatusTooManyRequests, "2001:db8:0:1::1": http.StatusNoContent} {
			if w := Serve(t, from(address), h); w.Code != want {
				t.Errorf("%s: status %d, want %d", address, w.Code, want)
			}
		}
		_ = it.end()
		if w := Serve(t, from("2001:db8::ffff"), h); w.Code != http.StatusNoContent {
			t.Errorf("afterwards: status %d, want 204", w.Code)
		}
	})
}

// The number comes from placeholders, and from fallback where they give none.
func TestConcurrentPlaceholders(t *testing.T) {
	for zone, more := range map[string]string{"alone": "", "beside": `,"limits":[{"max":1000,"window":"1h"}]`} {
		t.Run(zone, func(t *testing.T) {
			h, _ := New(t, OfZone(t, `"key":"{http.request.header.X-Key}","concurrent":{"max":"{http.request.header.X-Max}","fallback":2}`+more, ``))
			for most, want := range map[string]int{"3": 3, "1": 1, "0": 0, "": 2, "-1": 2, "many": 2, "9007199254740993": 2} {
				o, all := &open{h: h}, []*one(nil)
				for len(all) <= want {
					it := o.begin(Get("X-Key", "k"+most, "X-Max", most))
					if it.status() != http.StatusNoContent {
						_ = it.end()
						break
					}
					all = append(all, it)
				}
				if len(all) != want {
					t.Errorf("%q: %d requests are open, want %d", most, len(all), want)
				}
				for _, it := range all {
					_ = it.end()
				}
			}
		})
	}
}

// mark decides in line, and holds if the zone would let the request pass. shadow and a percentage hold beside the handlers.
func TestConcurrentEnforce(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		for name, word := range map[string]string{"mark": "mark", "shadow": "shadow", "part": "50%"} {
			t.Run(name, func(t *testing.T) {
				h, ctx := New(t, OfZone(t, oneAtOnce+`,"enforce":"`+word+`"`, `,`+store))
				isOpen := func() float64 { return Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)) }
				denials := func() float64 {
					return Metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", ZoneName(t), "outcome", "shadow_denied")
				}
				o, before := &open{h: h}, denials()
				keys := []string{"a"}
				if word == "50%" {
					keys = strings.Split("abcdefghij", "")
				}
				var all []*one
				for _, key := range keys {
					all = append(all, o.begin(Get("X-Key", key)))
				}
				Poll(t, "all are open", func() bool { return isOpen() == float64(len(keys)) })
				denied := 0
				for _, key := range keys {
					if !isAdmitted(t, h, "X-Key", key) {
						denied++
					}
				}
				if word == "50%" && (denied == 0 || denied == len(keys)) || word != "50%" && denied > 0 {
					t.Errorf("%d of %d keys are denied", denied, len(keys))
				}
				Poll(t, "the others are decided on", func() bool { return denials()-before == float64(len(keys)-denied) })
				for _, it := range all {
					_ = it.end()
				}
				Poll(t, "none is open", func() bool { return isOpen() == 0 })
				for _, key := range keys {
					Serve(t, Get("X-Key", key), h) // decided after its end, in shadow
				}
				Poll(t, "none is open", func() bool { return isOpen() == 0 })
			})
		}
	})
}

// server serves requests over HTTP/1.1.
func server(t *testing.T, h caddyhttp.MiddlewareHandler, next caddyhttp.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
		if err := h.ServeHTTP(w, r, next); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// A connection that a handler has taken over holds its slot until it is closed, be it long after the handler has returned. It is
// as fast as before, and closes once.
func TestConcurrentHijack(t *testing.T) {
	for _, hold := range []string{"body", "status"} {
		t.Run(hold, func(t *testing.T) {
			h, ctx := New(t, OfZone(t, `"key":"all","concurrent":{"max":1,"hold":"`+hold+`"}`, ``))
			taken, returned := make(chan net.Conn, 1), make(chan struct{})
			s := server(t, h, func(w http.ResponseWriter, _ *http.Request) error {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return err
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
				taken <- conn
				close(returned)
				return nil
			})
			client, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			response, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", response, err)
			}
			conn := <-taken
			<-returned
			wantPass(t, "while the connection is there", h, false)
			if _, ok := conn.(io.ReaderFrom); !ok {
				t.Error("the connection cannot be read from a file by the kernel")
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			wantPass(t, "with one direction closed", h, false)
			for range 3 {
				_ = conn.Close()
			}
			if n := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); n != 0 {
				t.Errorf("%v requests are open, want 0", n)
			}
			wantPass(t, "once it is closed", h, true)
		})
	}
}

// A handler that takes a connection over and forgets it, as one that panics, leaks no slot: the connection cannot be closed any
// more.
func TestConcurrentForgottenConnection(t *testing.T) {
	h, _ := New(t, OfZone(t, `"key":"all","concurrent":{"max":1}`, ``))
	here, there := net.Pipe()
	defer here.Close()
	err := AnswerWith(h, &pipe{httptest.NewRecorder(), there}, Get(), func(w http.ResponseWriter, _ *http.Request) error {
		_, _, _ = http.NewResponseController(w).Hijack()
		panic(http.ErrAbortHandler)
	})
	if err == nil {
		t.Fatal("no panic")
	}
	Poll(t, "the slot is free", func() bool {
		runtime.GC()
		return isAdmitted(t, h)
	})
}

// A reload keeps what is open: the new configuration counts it, and it is free once at its end, when its own configuration is gone.
func TestConcurrentReload(t *testing.T) {
	zone := func(most int) string {
		return OfZone(t, fmt.Sprintf(`"key":"all","concurrent":{"max":%d}`, most), ``)
	}
	base, err := caddy.ProvisionContext(&caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	former, cancel := caddy.NewContext(base)
	h, err := Another(former, zone(1))
	if err != nil {
		t.Fatal(err)
	}
	first := (&open{h: h}).begin(Get())
	then, ctx := New(t, zone(2))
	cancel()
	second := (&open{h: then}).begin(Get())
	wantPass(t, "a third one", then, false)
	_ = first.end()
	third := (&open{h: then}).begin(Get())
	wantPass(t, "a third one after the first", then, false)
	_, _ = second.end(), third.end()
	wantPass(t, "afterwards", then, true)
	if n := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); n != 0 {
		t.Errorf("%v requests are open, want 0", n)
	}
}

// pipe is a response whose connection handlers can take over.
type pipe struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (p *pipe) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return p.conn, bufio.NewReadWriter(bufio.NewReader(p.conn), bufio.NewWriter(p.conn)), nil
}

// A WebSocket of six hours counts to its end, and not longer.
func TestConcurrentSixHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, ctx := New(t, OfZone(t, `"key":"all","concurrent":{"max":1,"lease":"2s"}`, ``))
		here, there := net.Pipe()
		defer here.Close()
		begin := time.Now()
		go func() {
			_ = AnswerWith(h, &pipe{httptest.NewRecorder(), there}, Get(), func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(http.StatusSwitchingProtocols)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return err
				}
				defer conn.Close()
				_, err = io.Copy(io.Discard, conn)
				return err
			})
		}()
		synctest.Wait()
		before := Metric(t, ctx, "caddy_sliding_window_concurrent_held_seconds", "zone", ZoneName(t))
		for time.Since(begin) < 6*time.Hour {
			wantPass(t, "after "+time.Since(begin).String(), h, false)
			_, _ = io.WriteString(here, "ping")
			time.Sleep(7 * time.Minute)
		}
		_ = here.Close()
		synctest.Wait()
		wantPass(t, "afterwards", h, true)
		if n := Metric(t, ctx, "caddy_sliding_window_concurrent_held_seconds", "zone", ZoneName(t)); n != before+2 {
			t.Errorf("%v times were measured, want 2", n-before)
		}
	})
}

// A client that leaves frees its slot when the handlers return.
func TestConcurrentAbort(t *testing.T) {
	h, _ := New(t, OfZone(t, `"key":"all","concurrent":{"max":1}`, ``))
	begun := make(chan struct{})
	s := server(t, h, func(w http.ResponseWriter, r *http.Request) error {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-begun
	wantPass(t, "while it streams", h, false)
	cancel()
	Poll(t, "the slot is free", func() bool { return isAdmitted(t, h) })
}

// Placeholders have the slots, error routes hear of the denial, and APIs have no fields for it.
func TestConcurrentTold(t *testing.T) {
	name := ZoneName(t)
	h, _ := New(t, OfZone(t, `"key":"{http.request.header.X-Key}","concurrent":{"max":2}`, `,"errors":"openai","headers":"both"`))
	o := &open{h: h}
	for _, it := range []*one{o.begin(Get()), o.begin(Get())} {
		defer func() { _ = it.end() }()
	}
	r := Get()
	w := Serve(t, r, h)
	text := fmt.Sprintf("{http.sliding_window.allowed} {http.sliding_window.zone} {http.sliding_window.%[1]s.limit} {http.sliding_window.%[1]s.remaining} {http.sliding_window.retry_after} {http.sliding_window.%[1]s.reset_after}", name)
	if got, want := Expand(r, text), "false "+name+" 2 0 0 0"; got != want {
		t.Errorf("placeholders: %s, want %s", got, want)
	}
	for field := range w.Header() {
		if strings.HasSuffix(field, "-Requests") || strings.Contains(field, "Retry") {
			t.Errorf("%s: %s", field, w.Header()[field])
		}
	}
	var told struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || !strings.Contains(told.Error.Message, "Too many requests are open at the same time") {
		t.Errorf("body %s", w.Body)
	}
}
