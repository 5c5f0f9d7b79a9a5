package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
)

// reserving is the option of a zone whose requests reserve what their bodies say.
const reserving = "cost 1000\n\t\t\t\tsettle {\n\t\t\t\t\tusage openai\n\t\t\t\t\treserve_json max_tokens\n\t\t\t\t}"

// serveZones serves zones in front of a back end.
func serveZones(t testing.TB, store, zones, backend string) (address string) {
	t.Helper()
	address = caddyrun.FreeAddress(t)
	if err := loadCaddy(fmt.Sprintf(withH2C+`http://%s {
	sliding_window {
		%s
	}
	reverse_proxy %s
}
`, store, address, zones, backend)); err != nil {
		t.Fatal(err)
	}
	return address
}

// post sends a request with header fields, name after name.
func post(t testing.TB, client *http.Client, url, body string, header ...string) (status int, h http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// One request that asks for all that all have does not lock others out: it reserves what its user may spend,
// also if it is not counted for any user.
func TestOneRequestDoesNotReserveAll(t *testing.T) {
	const (
		everybody = "zone everybody {\n\t\t\tkey all\n\t\t\tlimit 5000000 1m\n\t\t\t" + reserving + "\n\t\t}"
		user      = "zone user {\n\t\t\tkey {header.Authorization}\n\t\t\tlimit 100000 1m\n\t\t\t" + reserving + "\n\t\t}\n\t\t"
	)
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		for name, c := range map[string]struct{ zones, authorization string }{
			"with a key":           {user + everybody, "Bearer evil"},
			"without a key":        {strings.Replace(user, "limit", "empty_key skip\n\t\t\tlimit", 1) + everybody, ""},
			"with the zones apart": {strings.Replace(everybody, "reserve_json", "reserve_max 90000\n\t\t\t\t\treserve_json", 1), "Bearer evil"},
		} {
			t.Run(name, func(t *testing.T) {
				asked, goOn := make(chan bool, 1), make(chan bool)
				model := newModel(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/held" {
						asked <- true
						<-goOn
					}
					w.WriteHeader(http.StatusUnauthorized)
				})
				address, client := serveZones(t, store, c.zones, model), caddyrun.NewClient(t)
				var wg sync.WaitGroup
				wg.Go(func() {
					post(t, client, "http://"+address+"/held", `{"max_tokens":4999999}`, "Authorization", c.authorization)
				})
				<-asked
				denied := 0
				for i := range 20 {
					if status, _ := post(t, client, "http://"+address+"/", `{"max_tokens":1000}`, "Authorization", fmt.Sprint("Bearer ", i)); status == 429 {
						denied++
					}
				}
				close(goOn)
				wg.Wait()
				if denied > 0 {
					t.Errorf("%d of 20 others were denied", denied)
				}
			})
		}
	})
}

// What a request reserves whose body or header is odd: cost at least, and what a back end reads that does not mind.
func TestOddRequestsReserve(t *testing.T) {
	const limit = 100_000
	padding := strings.Repeat("x", 300_000)
	var h2c http.Protocols
	h2c.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &h2c}
	t.Cleanup(transport.CloseIdleConnections)
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		read := make(chan int, 1)
		model := newModel(t, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			read <- len(body)
		})
		address := serveZones(t, store, fmt.Sprintf("zone tokens {\n\t\t\tkey {header.X-Key}\n\t\t\tlimit %d 1h\n\t\t\t%s\n\t\t}", limit, reserving), model)
		for protocol, client := range map[string]*http.Client{"HTTP/1.1": caddyrun.NewClient(t), "HTTP/2": {Transport: transport}} {
			for _, c := range []struct {
				name, body string
				want       int
				header     []string
			}{
				{"as it should be", `{"max_tokens":50}`, 50, nil},
				{"Upgrade", `{"max_tokens":5000}`, 5000, []string{"Upgrade", "x"}},
				{"Upgrade, and little", `{"max_tokens":1}`, 1000, []string{"Upgrade", "x"}},
				{"gRPC", `{"max_tokens":5000}`, 5000, []string{"Content-Type", "application/grpc"}},
				{"gRPC, and little", `{"max_tokens":1}`, 1000, []string{"Content-Type", "application/grpc"}},
				{"a coding", `{"max_tokens":5000}`, 5000, []string{"Content-Encoding", "x"}},
				{"a second coding", `{"max_tokens":1}`, 1000, []string{"Content-Encoding", "identity", "Content-Encoding", "x"}},
				{"0", `{"max_tokens":0}`, 1000, nil},
				{"0.0001", `{"max_tokens":0.0001}`, 1000, nil},
				{"negative", `{"max_tokens":-5}`, 1000, nil},
				{"a number and null", `{"max_tokens":1,"max_tokens":null}`, 1000, nil},
				{"n", `{"max_tokens":50,"n":100}`, 5000, nil},
				{"best_of", `{"max_tokens":50,"best_of":100}`, 5000, nil},
				{"prompts", `{"max_tokens":50,"prompt":["` + strings.Repeat(`a","`, 99) + `"]}`, 5000, nil},
				{"a decoy and padding", `{"max_tokens":1,"x":"` + padding + `","max_tokens":5000}`, 1000, nil},
				{"more than the limit", `{"max_tokens":5000000}`, limit, nil},
			} {
				if protocol == "HTTP/2" && c.name[:1] == "U" {
					continue // it has no such field
				}
				_, header := post(t, client, "http://"+address+"/", c.body, append(c.header, "X-Key", protocol+c.name)...)
				if want := fmt.Sprintf(`"tokens";r=%d;`, limit-c.want); !strings.HasPrefix(header.Get("RateLimit"), want) {
					t.Errorf("%s: %s: RateLimit %s, want %s", protocol, c.name, header.Get("RateLimit"), want)
				}
				if n := <-read; n != len(c.body) {
					t.Errorf("%s: %s: the back end reads %d bytes, want %d", protocol, c.name, n, len(c.body))
				}
			}
		}
	})
}

// heldHead sends the head of a request, and the start of its body, and returns when Caddy asks for the body or answers.
func heldHead(t testing.TB, address, key, head, body string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nX-Key: %s\r\nExpect: 100-continue\r\n%s\r\n\r\n%s", address, key, head, body)
	lines := bufio.NewReader(conn)
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, _ = lines.ReadString('\n')
	return conn, lines, strings.TrimSpace(line)
}

// unread returns how many bodies of a zone were not read before the decision, by reason.
func unread(t testing.TB, zone, reason string) float64 {
	t.Helper()
	n, _ := metricstest.Find(t, metricstest.Of(metrics.UnreadBodiesTotal), "caddy_sliding_window_unread_bodies_total", "zone", zone, "reason", reason)
	return n
}

// Heads of log-ins without a body, or with some of it, do not lock an account out. They are answered with 408 after a
// time, or end with the connection; both are in the metrics.
func TestHeadsHoldNothing(t *testing.T) {
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		login := newLogin(t)
		address, client := caddyrun.FreeAddress(t), caddyrun.NewClient(t)
		if err := loadCaddy(logins(address, store, "status 401 403", "reverse_proxy "+login.Listener.Addr().String())); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct{ head, body string }{
			"announced": {"Content-Length: 20", ""},
			"in part":   {"Content-Length: 20", "password="},
			"large":     {"Content-Length: 100000", strings.Repeat("x", 50_000)},
			"chunked":   {"Transfer-Encoding: chunked", "5\r\nhello\r\n"},
		} {
			t.Run(name, func(t *testing.T) {
				key, broken, late := t.Name(), unread(t, "logins", "broken"), unread(t, "logins", "late")
				var conns []net.Conn
				for range 5 {
					conn, _, line := heldHead(t, address, key, c.head, c.body)
					if line != "HTTP/1.1 100 Continue" {
						t.Errorf("%s, want 100", line)
					}
					conns = append(conns, conn)
				}
				if status, _ := logIn(client, address, key, "X-Password", "right"); status != 200 {
					t.Errorf("status %d of a right log-in, want 200", status)
				}
				for _, conn := range conns {
					_ = conn.Close()
				}
				caddyrun.Eventually(t, 20*time.Second, "the metrics count the bodies", func() bool { return unread(t, "logins", "broken") == broken+5 })
				defer func(d time.Duration) { usage.BodyTime = d }(usage.BodyTime)
				usage.BodyTime = 50 * time.Millisecond
				_, lines, _ := heldHead(t, address, key, c.head, c.body)
				if line, err := lines.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 408 ") {
					t.Errorf("%q, %v after the time, want 408", line, err)
				}
				if n := unread(t, "logins", "late"); n != late+1 {
					t.Errorf("%v bodies are late, want %v", n, late+1)
				}
				if status, _ := logIn(client, address, key, "X-Password", "right"); status != 200 {
					t.Errorf("status %d of a right log-in, want 200", status)
				}
			})
		}
	})
}

// A key that is denied anyway is denied before its body is read.
func TestDeniedBeforeTheBody(t *testing.T) {
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":5000,"completion_tokens":0}}`)
		}))
		t.Cleanup(model.Close)
		address := serveZones(t, store, "zone tokens {\n\t\t\tkey {header.X-Key}\n\t\t\tlimit 5000 1h\n\t\t\t"+reserving+"\n\t\t}", model.Listener.Addr().String())
		client := caddyrun.NewClient(t)
		caddyrun.Eventually(t, 20*time.Second, "the limit is used up", func() bool {
			status, _ := post(t, client, "http://"+address+"/", `{"max_tokens":10}`, "X-Key", t.Name())
			return status == 429
		})
		defer func(d time.Duration) { usage.BodyTime = d }(usage.BodyTime)
		usage.BodyTime = 100 * time.Millisecond
		for range 3 {
			post(t, client, "http://"+address+"/", `{"max_tokens":20}`, "X-Key", t.Name())
			// Go's server reads what is left of a body before it answers, up to 256 KiB.
			if _, _, line := heldHead(t, address, t.Name(), "Content-Length: 200000", ""); !strings.HasPrefix(line, "HTTP/1.1 429 ") {
				t.Errorf("%s, want 429", line)
			}
		}
		if _, _, line := heldHead(t, address, "other", "Content-Length: 200000", ""); line != "HTTP/1.1 100 Continue" {
			t.Errorf("%s of another key, want 100", line)
		}
	})
}

// inUse returns how much memory is in use.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// 400 clients that send most of a body and wait take little more memory than those whose bodies are not read before the
// decision, and no request waits for their memory. Those of a key whose limit is used up are denied.
func TestSlowBodiesTakeLittleMemory(t *testing.T) {
	s := serveTokens(t, "memory", "limit 5000 1h\n\t\t\t\tsettle {\n\t\t\t\t\tusage openai\n\t\t\t\t\treserve_json max_tokens\n\t\t\t\t}", "", "", "respond 200")
	t.Cleanup(func() { _ = caddy.Stop() })
	body := bytes.Repeat([]byte("x"), 250_000)
	decided := func(outcome string) float64 {
		n, _ := metricstest.Find(t, metricstest.Of(metrics.DecisionsTotal), "caddy_sliding_window_decisions_total", "zone", "tokens", "outcome", outcome)
		return n
	}
	s.ask("/", "used up", "5000", "") // it does not tell what it cost
	// slow returns how much memory 400 clients take when enough of them have been counted.
	slow := func(key func(i int) string, cost string, want float64, counted func() float64) int64 {
		already, before := counted(), inUse()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for i := range 400 {
			conn, err := net.Dial("tcp", s.address)
			if err != nil {
				t.Fatal(err)
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			wg.Go(func() {
				_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: %s\r\nX-Key: %s\r\nX-Cost: %s\r\nContent-Length: 260000\r\n\r\n", s.address, s.prefix+key(i), cost)
				_, _ = conn.Write(body) // what the sockets do not take waits
			})
		}
		caddyrun.Eventually(t, 30*time.Second, "the requests are decided on", func() bool { return counted()-already >= want })
		if status, _, _ := s.ask("/", "other", "", `{"max_tokens":10}`); status != 200 {
			t.Errorf("status %d for another client, want 200", status)
		}
		return inUse() - before
	}
	each := func(i int) string { return fmt.Sprint(i) }
	slow(each, "0", 400, func() float64 { return decided("allowed") }) // stacks and buffers that Go keeps
	unreadBodies := slow(each, "0", 400, func() float64 { return decided("allowed") })
	denied := slow(func(int) string { return "used up" }, "1000", 400, func() float64 { return decided("denied") })
	open := slow(each, "1000", 370, func() float64 { return unread(t, "tokens", "no_room") })
	t.Logf("KiB more: %d without reading, %d denied, %d read", unreadBodies>>10, denied>>10, open>>10)
	if most := unreadBodies + 8<<20; denied > most || open > most {
		t.Errorf("%d bytes more are in use, and %d with an unused limit, want at most %d", denied, open, most)
	}
}
