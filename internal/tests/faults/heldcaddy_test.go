package faults_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/heldtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// slots is how many requests of a key may be open at once before a back end.
const slots = 1000

// backEnd answers at once, but for paths of which the answers last: /stream until the client goes, and /socket, a connection
// that is upgraded.
func backEnd(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: begun\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/socket":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// startHeld runs a Caddy whose zone holds slots in Redis.
func startHeld(t *testing.T, redis, backEnd string, limit int) (*caddyrun.Process, string) {
	t.Helper()
	address := caddyrun.FreeAddress(t)
	return caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	grace_period 100ms
	sliding_window {
		store redis redis://%s {
			timeout %s
		}
		on_error deny
	}
}
http://%s {
	respond /healthz ok
	sliding_window {
		zone held {
			key {header.X-Key}
			concurrent %d {
				lease %s
			}
		}
	}
	reverse_proxy %s {
		flush_interval -1
	}
}
`, redis, patient, address, limit, lease, backEnd), address), address
}

// open sends a request, and returns its connection once the answer has begun.
func open(t *testing.T, address, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	upgrade := ""
	if path == "/socket" {
		upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	}
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Key: k\r\n%s\r\n", path, address, upgrade)
	_ = conn.SetDeadline(time.Now().Add(patient))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 200 ") && !strings.Contains(line, " 101 ") {
		t.Fatalf("%s: %q, %v", path, line, err)
	}
	return conn
}

// left returns how many slots a Caddy says are left beside that of its answer, and -1 if it denies the request.
func left(t *testing.T, client *http.Client, address string) (n int) {
	t.Helper()
	a := caddyrun.MustGet(t, client, address, "k")
	if a.Status == http.StatusTooManyRequests {
		return -1
	}
	if _, err := fmt.Sscanf(a.Header.Get("RateLimit"), `"held";r=%d`, &n); err != nil {
		t.Fatalf("status %d, RateLimit %q", a.Status, a.Header.Get("RateLimit"))
	}
	return n
}

// TestHeldByACaddy kills, terminates and stops a Caddy that holds 1,000 slots, with streams and WebSockets. Another one says when
// they are free.
func TestHeldByACaddy(t *testing.T) {
	redis, backEnd, client := redistest.Start(t).Addr, backEnd(t), caddyrun.NewClient(t)
	_, other := startHeld(t, redis, backEnd, slots)
	holding := func(t *testing.T) (p *caddyrun.Process, conns []net.Conn) {
		t.Helper()
		p, address := startHeld(t, redis, backEnd, slots)
		for i := range slots {
			path := "/stream"
			if i%10 == 0 {
				path = "/socket"
			}
			conns = append(conns, open(t, address, path))
		}
		if n := left(t, client, other); n >= 0 {
			t.Fatalf("%d of %d slots are left", n+1, slots)
		}
		return p, conns
	}
	// first waits until the other Caddy admits a request, and wants all slots to be free then. It returns how long that took.
	first := func(t *testing.T, since time.Time) time.Duration {
		t.Helper()
		n := -1
		caddyrun.Eventually(t, patient, "a slot is free", func() bool { n = left(t, client, other); return n >= 0 })
		took := time.Since(since)
		if n != slots-1 {
			t.Errorf("%d slots are free beside one, want %d", n, slots-1)
		}
		return took
	}

	t.Run("SIGTERM", func(t *testing.T) {
		p, _ := holding(t)
		told := time.Now()
		p.Terminate(t)
		if took := first(t, time.Now()); took > time.Second {
			t.Errorf("free %s after the end of a Caddy, want at once", took)
		}
		if took := time.Since(told); took > patient/2 { // the store waits for its timeout where a receipt is to be settled
			t.Errorf("free %s after SIGTERM: Caddy waits for requests that hold slots", took)
		}
	})
	t.Run("kill -9", func(t *testing.T) {
		p, _ := holding(t)
		p.Kill()
		killed := time.Now()
		took := first(t, killed)
		if took < lease-lease/3 || took > lease+time.Second { // the last message was up to a third of the lease before
			t.Errorf("free after %s, of a lease of %s", took, lease)
		}
		t.Logf("%d slots are free %s after the end, of a lease of %s", slots, took.Round(time.Millisecond), lease)
	})
	t.Run("SIGSTOP", func(t *testing.T) {
		const more = 20
		p, conns := holding(t)
		p.Stop()
		stopped := time.Now()
		first(t, stopped)
		for range more {
			conns = append(conns, open(t, other, "/stream"))
		}
		p.Cont()
		woken := time.Now()
		caddyrun.Eventually(t, heldtest.Healed, "the slots of the Caddy that was stopped count", func() bool { return left(t, client, other) < 0 })
		t.Logf("%d more than %d were admitted, until %s after the Caddy went on", more, slots, time.Since(woken).Round(time.Millisecond))
		for _, conn := range conns {
			_ = conn.Close()
		}
		caddyrun.Eventually(t, patient, "all slots are free", func() bool { return left(t, client, other) == slots-1 })
	})
}

// TestCrowdOfStreams lets 200 clients ask three Caddys for streams, and ask again as soon as they are denied. The back end counts
// what is open: never more than the limit, and that nearly all the time, though no client waits in a queue.
func TestCrowdOfStreams(t *testing.T) {
	const (
		limit, clients = 5, 200
		lasts          = 4 * time.Second
	)
	var mu sync.Mutex // guards what follows
	var open, most, served int
	var at [limit + 2]time.Duration // how long each number was open
	changed := time.Now()
	change := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		at[min(open, limit+1)] += time.Since(changed)
		changed = time.Now()
		open += by
		most = max(most, open)
		served += max(0, by)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		change(1)
		defer change(-1)
		for range 5 {
			_, _ = io.WriteString(w, "data: more\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(200 * time.Millisecond)
		}
	}))
	t.Cleanup(s.Close)
	redis := redistest.Start(t).Addr
	var addresses []string
	for range 3 {
		_, address := startHeld(t, redis, s.Listener.Addr().String(), limit)
		addresses = append(addresses, address)
	}
	var group sync.WaitGroup
	var denied, odd atomic.Int64
	stop := make(chan struct{})
	for i := range clients {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patient}
			defer client.CloseIdleConnections()
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				switch a, err := caddyrun.Get(client, addresses[n%len(addresses)], "k"); {
				case err == nil && a.Status == http.StatusTooManyRequests:
					denied.Add(1)
				case err != nil || a.Status != http.StatusOK:
					odd.Add(1)
					t.Logf("%v, status %d", err, a.Status)
				}
			}
		})
	}
	time.Sleep(time.Second)
	change(0)
	mu.Lock()
	at, served = [limit + 2]time.Duration{}, 0
	mu.Unlock()
	time.Sleep(lasts)
	change(0)
	mu.Lock()
	shares, used, n := make([]string, len(at)), 0.0, served
	for i, d := range at {
		shares[i] = fmt.Sprintf("%.1f%%", 100*d.Seconds()/lasts.Seconds())
		used += float64(i) * d.Seconds() / lasts.Seconds() / limit
	}
	full := at[limit].Seconds() / lasts.Seconds()
	mu.Unlock()
	close(stop)
	group.Wait()
	if most != limit {
		t.Errorf("up to %d were open at once, want %d", most, limit)
	}
	if odd.Load() > 0 {
		t.Errorf("%d answers were neither 200 nor 429", odd.Load())
	}
	if full < 0.5 {
		t.Errorf("%d were open for %.1f%% of the time, want half at least", limit, 100*full)
	}
	t.Logf("%d streams of a second, %d denials; open 0 to %d for %v; %.1f%% of the slots used", n, denied.Load(), limit+1, shares, 100*used)
}
