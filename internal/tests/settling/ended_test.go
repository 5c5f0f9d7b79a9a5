package settling_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// judge is a back end that judges passwords by the header, and answers at a moment that X-Moment names.
type judge struct {
	address string
	judged  atomic.Int64 // since start
	arrived chan bool    // a request, each
}

// denied tells when a client with a body stops waiting: Go's server reads a body of HTTP/1.1 before it answers, so
// that the client does not see that it is denied.
func (j *judge) denied() <-chan time.Time {
	if j.judged.Load() < 5 {
		return nil
	}
	return time.After(20 * time.Millisecond)
}

// start forgets what has been judged.
func (j *judge) start() {
	for j.judged.Store(0); len(j.arrived) > 0; {
		<-j.arrived
	}
}

const (
	beforeHead = "before the head"
	inRequest  = "in the request's body"
	inBody     = "in the body"
	afterLast  = "after the last byte"
)

func newJudge(t *testing.T) *judge {
	j := &judge{arrived: make(chan bool, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		j.judged.Add(1)
		j.arrived <- true
		moment := r.Header.Get("X-Moment")
		if moment != inBody && moment != afterLast {
			_, err := io.Copy(io.Discard, r.Body)
			if err == nil {
				<-r.Context().Done()
			}
		}
		status := http.StatusUnauthorized
		if r.Header.Get("X-Password") == "right" {
			status = http.StatusOK
		}
		if moment != inBody || r.URL.Path == "/flushed" {
			w.Header().Set("Content-Length", "4") // an answer with a length is flushed as it comes there only
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "th")
		_ = http.NewResponseController(w).Flush()
		if moment == inBody {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, "at")
	}))
	t.Cleanup(server.Close)
	j.address = server.Listener.Addr().String()
	return j
}

// unsent is a body of which one byte comes, and the rest never.
type unsent struct {
	ctx  context.Context
	sent bool
}

func (u *unsent) Read(p []byte) (int, error) {
	if !u.sent {
		u.sent, p[0] = true, 'x'
		return 1, nil
	}
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

// awaited is more than what is awaited of a body that may be long.
var awaited = strings.Repeat("x", 16<<10)

// try sends a password, and hangs up at a moment. It returns once the request has been judged or denied.
func (j *judge) try(s *secureSite, client http.RoundTripper, path, moment, key, password string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	req := s.request(ctx, http.MethodPost, path, key)
	req.Header.Set("X-Moment", moment)
	req.Header.Set("X-Password", password)
	if moment == inRequest {
		// A body that may be long: a short one is awaited before the request is counted.
		req.Body, req.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(awaited), &unsent{ctx: ctx})), 1<<20
	}
	denied := j.denied()
	hungUp := make(chan bool)
	if moment == beforeHead || moment == inRequest {
		go func() {
			defer close(hungUp)
			select {
			case <-j.arrived:
				cancel()
			case <-denied:
				cancel()
			case <-ctx.Done():
			}
		}()
	} else {
		close(hungUp)
	}
	resp, err := client.RoundTrip(req)
	if err != nil && ctx.Err() == nil {
		cancel()
		s.Error(err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.Fatalf("%s, %s: neither judged nor denied", path, moment)
	}
	if err == nil {
		if moment == afterLast {
			_, _ = io.Copy(io.Discard, resp.Body)
		} else {
			_, _ = resp.Body.Read(make([]byte, 1))
		}
		cancel()
		_ = resp.Body.Close()
	}
	<-hungUp
}

// tryRaw sends a wrong password and a body as it is, over HTTP/1.1, and reads the answer.
func (j *judge) tryRaw(s *secureSite, path, key, body string) {
	s.Helper()
	conn, err := tls.Dial("tcp", s.address, s.tls("http/1.1"))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nX-Key: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", path, s.host, key, len(awaited), awaited); err != nil {
		s.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	answered := make(chan bool)
	go func() {
		defer close(answered)
		resp, err := http.ReadResponse(lines, nil)
		if err != nil {
			s.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
	select {
	case <-j.arrived: // judges by the header
	case <-j.denied():
	}
	_, _ = io.WriteString(conn, body)
	<-answered
}

// protocols carry requests of a client, by name.
func (s *secureSite) protocols() map[string]http.RoundTripper {
	return map[string]http.RoundTripper{"1.1": s.overHTTP1(), "2": s.overHTTP2(), "3": s.overHTTP3()}
}

// With Caddy's own reverse_proxy, a client has 5 guesses whenever it hangs up, with each store and over each
// protocol, also where another handler answers in the place of what a proxy says of a client that has gone.
func TestHangingUpMakesNoGuessFree(t *testing.T) {
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			j := newJudge(t)
			where := store
			if store == "redis" {
				where = "redis redis://" + redistest.Start(t).Addr + " {\n\t\t\ttimeout 5s\n\t\t}"
			}
			s := serveDirectives(t, where, strings.ReplaceAll(``+failures+`
	handle /flushed {
		reverse_proxy ADDRESS {
			flush_interval -1
		}
	}
	handle /intercepted {
		intercept {
			@failed status 4xx
			handle_response @failed {
				respond "no" 200
			}
		}
		reverse_proxy ADDRESS
	}
	handle /handled {
		reverse_proxy ADDRESS {
			@wrong status 401
			handle_response @wrong {
				copy_response 403
			}
		}
	}
	handle {
		reverse_proxy ADDRESS
	}`, "ADDRESS", j.address))
			try := func(times int, protocol string, client http.RoundTripper, path, moment, password string, want int64) {
				t.Helper()
				key := rand.Text()
				j.start()
				for range times {
					j.try(s, client, path, moment, key, password)
				}
				if judged := j.judged.Load(); judged != want {
					t.Errorf("HTTP/%s, %s, %s: %d of %d %s passwords were judged, want %d", protocol, path, moment, judged, times, password, want)
				}
			}
			for protocol, client := range s.protocols() {
				for path, moments := range map[string][]string{
					"/":            {beforeHead, inRequest, inBody, afterLast},
					"/flushed":     {beforeHead, inRequest, inBody, afterLast},
					"/handled":     {beforeHead, inRequest, inBody, afterLast},
					"/intercepted": {beforeHead, inRequest},
				} {
					for _, moment := range moments {
						times := 20
						if path == "/" {
							times = 100
						}
						try(times, protocol, client, path, moment, "wrong", 5)
						if moment == inBody || moment == afterLast {
							try(10, protocol, client, path, moment, "right", 10)
						}
					}
				}
			}
		})
	}
}

// failures is a zone with 5 guesses.
const failures = `sliding_window {
		zone failures {
			key {header.X-Key}
			limit 5 1h
			count_if status 401 403
		}
	}`

// Nor is a guess free whose body the client breaks off in another way while it waits for the answer.
func TestBrokenBodiesMakeNoGuessFree(t *testing.T) {
	j := newJudge(t)
	s := serveDirectives(t, "memory", "request_body /limited {\n\t\tmax_size 16500\n\t}\n\t"+failures+"\n\treverse_proxy "+j.address)
	for path, rest := range map[string]string{"/": "not a size\r\n\r\n", "/limited": "c8\r\n" + strings.Repeat("x", 200) + "\r\n0\r\n\r\n"} {
		key := rand.Text()
		j.start()
		for range 100 {
			j.tryRaw(s, path, key, rest)
		}
		if judged := j.judged.Load(); judged != 5 {
			t.Errorf("%s: %d of 100 guesses were judged, want 5", path, judged)
		}
	}
}

var zoneLeft = regexp.MustCompile(`"(\w+)";r=(\d+)`)

// lefts returns how many units are left to a key in each zone, by a request that costs nothing.
func (s *secureSite) lefts(client http.RoundTripper, key string) map[string]int {
	s.Helper()
	req := s.request(s.Context(), http.MethodGet, "/look", key)
	req.Header.Set("X-Cost", "0")
	resp, err := client.RoundTrip(req)
	if err != nil {
		s.Fatal(err)
	}
	_ = resp.Body.Close()
	left := make(map[string]int)
	for _, field := range resp.Header.Values("RateLimit") {
		for _, m := range zoneLeft.FindAllStringSubmatch(field, -1) {
			left[m[1]], _ = strconv.Atoi(m[2])
		}
	}
	return left
}

// A client that hangs up before the answer keeps its reservation, whatever refunds an answer without figures.
func TestHangingUpKeepsTheReservation(t *testing.T) {
	j := newJudge(t)
	s := serveDirectives(t, "memory", `header /typed Content-Type text/plain
	sliding_window {
		zone missing {
			key {header.X-Key}
			limit 10000 1h
			cost {header.X-Cost}
			settle header X-Units {
				on_missing refund
			}
		}
		zone refused {
			key {header.X-Key}
			limit 10000 1h
			cost {header.X-Cost}
			settle header X-Units {
				refund_if status 4xx 5xx
			}
		}
		zone tokens {
			key {header.X-Key}
			limit 10000 1h
			cost {header.X-Cost}
			settle usage openai
		}
		zone price {
			key {header.X-Key}
			limit 10000 1h
			cost {header.X-Cost}
			settle json price {
				on_missing refund
				refund_if status 4xx 5xx
			}
		}
	}
	respond /look 204
	reverse_proxy `+j.address)
	for protocol, client := range s.protocols() {
		for _, path := range []string{"/", "/typed"} {
			for _, moment := range []string{beforeHead, inRequest} {
				key := rand.Text()
				j.start()
				for range 5 {
					j.try(s, client, path, moment, key, "wrong")
				}
				var left map[string]int
				settled := func() bool {
					left = s.lefts(client, key)
					return left["missing"] == 9500 && left["refused"] == 9500 && left["tokens"] == 9500 && left["price"] == 9500
				}
				time.Sleep(50 * time.Millisecond) // for a refund, which must not come
				if !settled() {
					t.Errorf("HTTP/%s, %s, %s: %v are left after 5 hang-ups of 100 units, want 9500", protocol, path, moment, left)
				}
			}
		}
	}
}

// A client that closes as soon as it has the whole answer has not hung up.
func TestWholeAnswersAreNotAborted(t *testing.T) {
	const usage = `{"usage":{"prompt_tokens":7}}`
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, _ := strconv.Atoi(r.Header.Get("X-Status")); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(usage)))
		_, _ = io.WriteString(w, usage)
	}))
	t.Cleanup(backEnd.Close)
	s := serveDirectives(t, "memory", `sliding_window {
		zone tokens {
			key {header.X-Key}
			limit 10000000 1h
			cost {header.X-Cost}
			settle usage openai {
				on_missing refund
			}
		}
	}
	respond /look 204
	reverse_proxy `+backEnd.Listener.Addr().String()+` {
		flush_interval -1
	}`)
	over1 := func(req *http.Request) error {
		conn, err := tls.Dial("tcp", s.address, s.tls("http/1.1"))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := req.Write(conn); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
		}
		return err
	}
	over := func(client http.RoundTripper) func(*http.Request) error {
		return func(req *http.Request) error {
			ctx, cancel := context.WithCancel(s.Context())
			defer cancel()
			resp, err := client.RoundTrip(req.WithContext(ctx))
			if err != nil {
				return err
			}
			if resp.ContentLength > 0 && req.Method != http.MethodHead {
				_, err = io.ReadFull(resp.Body, make([]byte, resp.ContentLength))
			}
			cancel()
			_ = resp.Body.Close()
			return err
		}
	}
	const each = 56 // 18 times, which makes 1,008
	look := s.overHTTP1()
	for protocol, ask := range map[string]func(*http.Request) error{"1.1": over1, "2": over(s.overHTTP2()), "3": over(s.overHTTP3())} {
		for _, c := range []struct {
			method string
			status int
			cost   int // of each
		}{{"POST", 500, 0}, {"POST", 429, 0}, {"HEAD", 404, 0}, {"POST", 204, 0}, {"GET", 304, 0}, {"POST", 200, 7}} {
			key := rand.Text()
			for range each {
				req := s.request(s.Context(), c.method, "/", key)
				req.Header.Set("X-Cost", "1000")
				req.Header.Set("X-Status", strconv.Itoa(c.status))
				if err := ask(req); err != nil {
					t.Fatal(err)
				}
			}
			want := 10_000_000 - each*c.cost
			var left int
			for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline) && left != want; time.Sleep(10 * time.Millisecond) {
				left = s.lefts(look, key)["tokens"]
			}
			if left != want {
				t.Errorf("HTTP/%s, %s, status %d: %d units are left after %d whole answers, want %d: %d were taken for aborted ones",
					protocol, c.method, c.status, left, each, want, (want-left)/(1000-c.cost))
			}
		}
	}
}
