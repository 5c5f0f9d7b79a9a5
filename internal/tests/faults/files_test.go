package faults_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestFewFiles lets 60 clients ask a Caddy that may open twenty sockets more: no answer says that the store is away, and at most
// one line of the log names the cause. Some clients keep their connections, so that few are left for Redis.
func TestFewFiles(t *testing.T) {
	server, address := redistest.Start(t), caddyrun.FreeAddress(t)
	caddy := caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	sliding_window {
		store redis %s
		on_error deny
	}
}
http://%s {
	sliding_window api {header.X-Key} 1000000 1m
	respond ok
}`, "redis://"+server.Addr, address), address)
	caddy.LimitFiles(t, 20)
	var away, passed atomic.Int64
	var clients sync.WaitGroup
	for i := range 60 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: patient}
			defer client.CloseIdleConnections()
			for range 50 {
				r, _ := http.NewRequest(http.MethodGet, "http://"+address, nil)
				r.Header.Set("X-Key", fmt.Sprint(i))
				r.Close = i%4 != 0 // makes room for a client that waits to be accepted
				answer, err := client.Do(r)
				if err != nil {
					continue // Caddy accepts no more connections
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				switch answer.StatusCode {
				case http.StatusOK:
					passed.Add(1)
				default:
					away.Add(1)
				}
			}
		})
	}
	clients.Wait()
	log := caddy.Log.String()
	t.Logf("%d of 3,000 answers are 200", passed.Load())
	if n := strings.Count(log, "is unavailable"); n > 0 || away.Load() > 0 || passed.Load() == 0 {
		t.Errorf("%d lines of an outage, %d answers 503, %d of 3,000 answers 200", n, away.Load(), passed.Load())
	}
	if n := strings.Count(log, "too many open files"); n > 1 {
		t.Errorf("%d lines name the open files, want 1 at most:\n%s", n, log)
	}
}
