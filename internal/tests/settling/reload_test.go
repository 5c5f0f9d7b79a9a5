package settling_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// A reload replaces the store, or how it counts, under answers that are still running. They are settled once,
// where they were charged; the counters that came in their place keep what was charged there. When the
// first store is back, nothing is missing and nothing is left over.
func TestSettledUnderAnotherStore(t *testing.T) {
	one, other := redistest.Start(t), redistest.Start(t)
	redis := func(s *redistest.Server, more string) string {
		return "redis {\n\t\t\taddress " + s.Addr + "\n\t\t\ttimeout 5s\n\t\t\t" + more + "\n\t\t}"
	}
	for _, c := range []struct{ name, store, algorithm, thenStore, thenAlgorithm string }{
		{"another Redis", redis(one, "prefix a"), "zset", redis(other, "prefix a"), "zset"},
		{"another prefix", redis(one, "prefix b"), "log", redis(one, "prefix c"), "log"},
		{"another secret", redis(one, secretOld), "zset", redis(one, secretNew), "zset"},
		{"another algorithm", redis(one, "prefix d"), "zset", redis(one, "prefix d"), "slices"},
		{"memory for Redis", redis(one, "prefix e"), "slices", "memory", "slices"},
		{"Redis for memory", "memory", "log", redis(one, "prefix f"), "log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each waits
			b := newBackEnd(t)
			address := caddyrun.FreeAddress(t)
			process := caddyrun.Start(t, fleetConfig(address, c.store, c.algorithm, b.address), address)
			site := &client{t, caddyrun.NewClient(t), []string{address}, "key"}
			load := func(store, algorithm string) {
				t.Helper()
				text := strings.ReplaceAll(fleetConfig(address, store, algorithm, b.address), "{admin}", process.Admin)
				if status, body := process.Tell(t, http.MethodPost, "/load", "text/caddyfile", text); status != http.StatusOK {
					t.Fatalf("status %d: %s", status, body)
				}
				site.CloseIdleConnections() // the reload has closed them
			}
			var wg sync.WaitGroup
			waits := int64(0)
			running := func(header ...string) {
				waits++
				wg.Go(func() { site.ask(0, "/", append(header, "X-Wait", "1")...) })
			}
			for _, password := range []string{"right", "wrong", "right"} {
				running("X-Password", password)
			}
			for _, units := range []string{"30", "0", "250"} { // 100 are reserved
				running("X-Units", units, "X-Cost", "100")
			}
			caddyrun.Eventually(t, 20*time.Second, "all wait", func() bool { return b.waiting.Load() == waits })
			if n := site.left(0); n != 10000-300 {
				t.Errorf("%d units are left, want 9700", n)
			}

			load(c.thenStore, c.thenAlgorithm)
			for range 2 {
				site.ask(0, "/", "X-Password", "wrong")
			}
			site.ask(0, "/", "X-Units", "40", "X-Cost", "100")
			caddyrun.Eventually(t, 20*time.Second, "the second store counts", func() bool { return site.left(0) == 10000-40 })
			time.Sleep(6 * time.Second) // longer than a store lingers that no receipt holds
			close(b.goOn)
			wg.Wait()
			time.Sleep(500 * time.Millisecond) // for what is settled after the answer
			if n := site.left(0); n != 10000-40 {
				t.Errorf("%d units are left in the second store, want 9960", n)
			}
			site.wantWrong(3)

			if c.store == "memory" {
				return // it went with the last receipt
			}
			load(c.store, c.algorithm)
			caddyrun.Eventually(t, 20*time.Second, "all are settled in the first store", func() bool { return site.left(0) == 10000-280 })
			site.wantWrong(4)
		})
	}
}

// wantWrong expects that n wrong log-ins are tried, and no more.
func (c *client) wantWrong(n int) {
	c.Helper()
	for i := range n + 1 {
		want := http.StatusUnauthorized
		if i == n {
			want = http.StatusTooManyRequests
		}
		if status, _ := c.ask(0, "/", "X-Password", "wrong"); status != want {
			c.Errorf("wrong log-in %d of %d: status %d, want %d", i+1, n, status, want)
		}
	}
}
