package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/loadtest"
)

// returned is how many requests there were with the directive returns whose handlers have returned.
var returned atomic.Int64

func init() {
	registerDirective("returns", func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
		defer returned.Add(1)
		return next.ServeHTTP(w, r)
	})
}

// Requests whose clients hang up before Caddy's own reverse_proxy gets an answer tell load neither that the back end is
// quick, nor, where the client breaks off the request's body, that it fails.
func TestHangingUpTellsLoadNothing(t *testing.T) {
	arrived := make(chan bool)
	backEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			return
		}
		arrived <- true
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(backEnd.Close)
	step := loadtest.StandIn(t, nil, nil)
	c := newControlled(t, "", "route {\nreturns\nsliding_window {\nzone everybody {\nkey all\nlimit 100000 1m\nload latency 30s 1m\n}\n}\nreverse_proxy "+backEnd.Listener.Addr().String()+"\n}")
	latency := func() (float64, bool) {
		t.Helper()
		step(1)
		var status control.Status
		_, text := c.ask(http.MethodGet, "/sliding_window/status", "", "")
		if err := json.Unmarshal([]byte(text), &status); err != nil || len(status.Loads) != 1 {
			t.Fatalf("status: %s, %v", text, err)
		}
		value, known := status.Loads[0].Signals["latency"]
		return value, known
	}
	settle := func(before int64) {
		t.Helper()
		caddyrun.Eventually(t, 20*time.Second, "60 requests have ended", func() bool { return returned.Load() == before+60 })
	}
	before := returned.Load()
	for range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.site+"/slow", nil)
		if resp, err := c.client.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	settle(before)
	if value, known := latency(); known {
		t.Errorf("after 60 hang-ups: latency %v, want none", value)
	}
	before = returned.Load()
	for range 60 {
		conn, err := net.Dial("tcp", c.site)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = fmt.Fprintf(conn, "POST /slow HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", c.site)
		<-arrived
		_, _ = io.WriteString(conn, "not a size\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("%+v, %v, want 502", resp, err)
		}
		_ = resp.Body.Close()
		_ = conn.Close()
	}
	settle(before)
	if value, known := latency(); known {
		t.Errorf("after 60 broken bodies: latency %v, want none", value)
	}
	before = returned.Load()
	for range 60 {
		resp, err := c.client.Get("http://" + c.site + "/quick")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	settle(before)
	if value, known := latency(); !known || value > 30 {
		t.Errorf("after 60 answers: latency %v, %v", value, known)
	}
}
