package page_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/page"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const asText = `# TYPE caddy_sliding_window_decisions_total counter
caddy_sliding_window_decisions_total{outcome="allowed",zone="api"} 12
caddy_sliding_window_decisions_total{outcome="denied",zone="api"} 3
caddy_sliding_window_decisions_total{outcome="allowed",zone="logins"} 1e+06
# TYPE caddy_sliding_window_top_ten_ratio gauge
caddy_sliding_window_top_ten_ratio{by="denied",zone="api"} 0.5
caddy_sliding_window_top_ten_ratio{by="charged",zone="api"} 0.25
# TYPE caddy_sliding_window_concurrent gauge
caddy_sliding_window_concurrent{zone="logins"} 4
# TYPE caddy_sliding_window_store_memory_bytes gauge
caddy_sliding_window_store_memory_bytes{store="redis localhost:6379/0 sw"} 1024
# TYPE caddy_sliding_window_store_clock_offset_seconds gauge
caddy_sliding_window_store_clock_offset_seconds{store="redis localhost:6379/0 sw"} 0
# TYPE caddy_sliding_window_breaker_open gauge
caddy_sliding_window_breaker_open{node="",store="redis localhost:6379/0 sw"} AWAY
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.5
# TYPE go_goroutines gauge
go_goroutines 7
`

// caddy answers as the admin endpoint does, and counts what it is asked.
type caddy struct {
	mu     sync.Mutex // guards asked
	asked  map[string][]time.Time
	failed error
	away   bool          // the store
	silent chan struct{} // an answer waits for it, if it is not nil
}

func (c *caddy) ask(method, path string, question any) ([]byte, error) {
	body, _ := json.Marshal(question)
	c.mu.Lock()
	c.asked[method+" "+path] = append(c.asked[method+" "+path], time.Now())
	c.mu.Unlock()
	if c.silent != nil {
		<-c.silent
	}
	switch {
	case c.failed != nil:
		return nil, c.failed
	case path == "/metrics":
		away := "0"
		if c.away {
			away = "1"
		}
		return []byte(strings.Replace(asText, "AWAY", away, 1)), nil
	case path == "/sliding_window/overrides/list":
		return append([]byte(`{"asked":`), append(body, '}')...), nil
	case path == "/sliding_window/top":
		return append([]byte(`{"asked":`), append(body, '}')...), nil
	}
	return []byte(`{"version":"v1","stores":[]}`), nil
}

func newPage() (*page.Page, *caddy) {
	c := &caddy{asked: make(map[string][]time.Time)}
	return page.New("localhost:2019", c.ask), c
}

// send sends a request with fields, which are names and values.
func send(p *page.Page, method, path, host, body string, fields ...string) (status int, header http.Header, text string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = host
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	all, _ := io.ReadAll(w.Body)
	return w.Code, w.Header(), string(all)
}

const host = "127.0.0.1:8080"

// Only the page itself, in a browser that knows the token, may ask.
func TestWhoMayAsk(t *testing.T) {
	p, c := newPage()
	token := p.Token()
	for _, test := range []struct {
		method, path, host string
		fields             []string
		want               int
	}{
		{"GET", "/", host, nil, 200},
		{"HEAD", "/", "localhost:8080", nil, 200},
		{"GET", "/", "[::1]:8080", []string{"Sec-Fetch-Site", "none"}, 200},
		{"POST", "/", host, nil, 405},
		{"GET", "/", "evil.example:8080", nil, 403},
		{"GET", "/", "127.0.0.1.evil.example", nil, 403},
		{"GET", "/", "", nil, 403},
		{"GET", "/live", host, []string{page.TokenHeader, token}, 200},
		{"GET", "/live", host, []string{page.TokenHeader, token, "Origin", "http://" + host, "Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", "/live", host, nil, 403},
		{"GET", "/live?token=" + token, host, nil, 403},
		{"GET", "/live", host, []string{page.TokenHeader, token[:25]}, 403},
		{"GET", "/live", "rebound.example", []string{page.TokenHeader, token}, 403},
		{"GET", "/live", host, []string{page.TokenHeader, token, "Origin", "http://evil.example"}, 403},
		{"GET", "/live", host, []string{page.TokenHeader, token, "Origin", "null"}, 403},
		{"GET", "/live", host, []string{page.TokenHeader, token, "Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/live", host, []string{page.TokenHeader, token}, 404},
		{"GET", "/sliding_window/zones", host, []string{page.TokenHeader, token}, 404},
		{"GET", "/overrides", host, nil, 403},
		{"POST", "/top", host, []string{page.TokenHeader, token}, 415},
		{"POST", "/top", host, []string{"Content-Type", "application/json"}, 403},
	} {
		if status, header, text := send(p, test.method, test.path, test.host, "{}", test.fields...); status != test.want || header.Get("Cache-Control") != "no-store" || strings.Contains(text, token) {
			t.Errorf("%s %s for %s with %q: status %d, %s", test.method, test.path, test.host, test.fields, status, text)
		}
	}
	if len(c.asked["GET /metrics"]) != 1 || len(c.asked) != 2 {
		t.Errorf("Caddy was asked %v", c.asked)
	}
	if other, _ := newPage(); other.Token() == token || len(token) < 26 {
		t.Errorf("the token is %s twice", token)
	}
}

func TestDocument(t *testing.T) {
	p, _ := newPage()
	_, header, text := send(p, "GET", "/", host, "")
	file, err := os.ReadFile("page.html")
	if err != nil || text != string(file) || len(text) > 60_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if policy := header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
}

func TestLive(t *testing.T) {
	p, _ := newPage()
	_, _, text := send(p, "GET", "/live", host, "", page.TokenHeader, p.Token())
	for _, want := range []string{
		`"address":"localhost:2019"`,
		`{"name":"api","outcomes":{"allowed":12,"denied":3},"top_denied":0.5,"top_charged":0.25},{"name":"logins","outcomes":{"allowed":1000000},"held":4}`,
		`{"name":"redis localhost:6379/0 sw","memory":1024,"clock_offset":0}`,
		`"answer":{"version":"v1","stores":[]}`,
		`"began":1500,`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var first struct{ Status struct{ At json.Number } }
	if err := json.Unmarshal([]byte(text), &first); err != nil {
		t.Fatal(err)
	}
	if _, _, again := send(p, "GET", "/live?status="+first.Status.At.String(), host, "", page.TokenHeader, p.Token()); strings.Contains(again, "answer") {
		t.Errorf("the page gets a status that it has: %s", again)
	}
	if status, _, text := send(p, "POST", "/top", host, `{"zone":"api"}`, page.TokenHeader, p.Token(), "Content-Type", "application/json"); status != 200 || text != `{"asked":{"zone":"api"}}`+"\n" {
		t.Errorf("top: status %d, %s", status, text)
	}
}

// However many browsers ask, Caddy is asked for the status every 10 s at most, and for the metrics as often as
// one browser asks.
func TestHowOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPage()
		for range 5 * 60 { // ten minutes
			for range 3 {
				send(p, "GET", "/live", host, "", page.TokenHeader, p.Token())
			}
			time.Sleep(1999 * time.Millisecond)
		}
		statuses := c.asked["GET /sliding_window/status?zones&recent"]
		for i, at := range statuses {
			if i >= 6 && at.Sub(statuses[i-6]) < time.Minute {
				t.Errorf("more than 6 statuses in the minute before %s", at)
			}
		}
		if metrics := c.asked["GET /metrics"]; len(metrics) != 300 || len(statuses) < 45 {
			t.Errorf("in ten minutes %d metrics and %d statuses", len(metrics), len(statuses))
		}
	})
}

// A store that goes away, or comes back, has the status asked at once, but no more often than twice as often.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPage()
		live := func() int {
			time.Sleep(2 * time.Second)
			send(p, "GET", "/live", host, "", page.TokenHeader, p.Token())
			return len(c.asked["GET /sliding_window/status?zones&recent"])
		}
		live()
		live()
		c.away = true
		if live(); live() != 2 {
			t.Errorf("the status was asked %d times when the store was away", len(c.asked["GET /sliding_window/status?zones&recent"]))
		}
		before := live()
		for range 300 { // ten minutes
			c.away = !c.away
			live()
		}
		if n := live() - before; n > 120 {
			t.Errorf("a store that flaps has the status asked %d times in ten minutes", n)
		}
	})
}

// The overrides are asked for when a browser wants them, and not too often.
func TestOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPage()
		for range 60 {
			if status, _, text := send(p, "GET", "/overrides", host, "", page.TokenHeader, p.Token()); status != 200 || text != `{"asked":{}}`+"\n" {
				t.Fatalf("status %d, %s", status, text)
			}
			time.Sleep(time.Second)
		}
		if n := len(c.asked["POST /sliding_window/overrides/list"]); n != 6 {
			t.Errorf("asked %d times in a minute", n)
		}
		c.failed = errors.New("connection refused")
		time.Sleep(time.Minute)
		if status, _, text := send(p, "GET", "/overrides", host, "", page.TokenHeader, p.Token()); status != 502 || !strings.Contains(text, "connection refused") {
			t.Errorf("status %d, %s", status, text)
		}
	})
}

// A Caddy that does not answer is asked once, and then said to be silent; what it said before stays.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := newPage()
		live := func() string {
			_, _, text := send(p, "GET", "/live", host, "", page.TokenHeader, p.Token())
			return text
		}
		live()
		time.Sleep(time.Minute)
		c.silent = make(chan struct{})
		for range 10 {
			if text := live(); !strings.Contains(text, `"error":"Caddy has not answered for 3s"`) || !strings.Contains(text, `"version":"v1"`) {
				t.Errorf("while Caddy is silent: %s", text)
			}
			time.Sleep(2 * time.Second)
		}
		c.mu.Lock()
		if n := len(c.asked["GET /metrics"]); n != 2 {
			t.Errorf("asked %d times", n)
		}
		c.mu.Unlock()
		if status, _, text := send(p, "POST", "/top", host, "{}", page.TokenHeader, p.Token(), "Content-Type", "application/json"); status != 502 || !strings.Contains(text, "not answered") {
			t.Errorf("top: status %d, %s", status, text)
		}
		close(c.silent)
		synctest.Wait()
		time.Sleep(time.Minute)
		if text := live(); strings.Contains(text, "error") {
			t.Errorf("when Caddy is back: %s", text)
		}
		c.failed = errors.New("connection refused")
		time.Sleep(time.Minute)
		if text := live(); strings.Count(text, `"error":"connection refused"`) != 2 {
			t.Errorf("when Caddy is gone: %s", text)
		}
	})
}

func TestListen(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "localhost:0", "[::1]:0"} {
		l, err := page.Listen(address)
		if err != nil {
			if address == "[::1]:0" && !strings.Contains(err.Error(), "loopback") {
				continue // this machine has no IPv6
			}
			t.Errorf("%s: %v", address, err)
			continue
		}
		_ = l.Close()
	}
	for _, address := range []string{":0", "0.0.0.0:0", "192.0.2.1:80", "example.com:80", "127.0.0.1", "", "[::]:0"} {
		if l, err := page.Listen(address); err == nil || !strings.Contains(err.Error(), "must be an address of the loopback interface") {
			t.Errorf("%s: %v", address, err)
			if err == nil {
				_ = l.Close()
			}
		}
	}
}
