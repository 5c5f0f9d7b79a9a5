package e2e_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// Under reloads that open the store anew each denial becomes a ban in Redis, and whoever is banned stays so in every answer.
func TestBansOverReloads(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	server, address, run := redistest.Start(t), caddyrun.FreeAddress(t), rand.Text()
	load := func(i int) {
		t.Helper()
		if err := loadAtOnce(fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
	log {
		output discard
	}
}
http://%s {
	sliding_window {
		zone api {
			key {header.X-Key}
			limit 1 1h
			ban 1h {
				status 403
			}
		}
		store redis redis://%s {
			timeout %dms
		}
	}
	respond ok
}
`, address, server.Addr, 5000+i%2)); err != nil {
			t.Fatal(err)
		}
	}
	load(0)
	client, stop := caddyrun.NewClient(t), make(chan struct{})
	ask := func(key string) int {
		for {
			if a, err := caddyrun.Get(client, address, key); err == nil { // else the listener has just closed
				return a.Status
			}
		}
	}
	banned := run + " banned"
	caddyrun.Eventually(t, 20*time.Second, "a ban", func() bool { return ask(banned) == http.StatusForbidden })
	var group sync.WaitGroup
	denied := make([]map[string]bool, 4)
	for worker := range denied {
		denied[worker] = make(map[string]bool)
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint(run, " ", worker, " ", n)
				for range 2 {
					denied[worker][key] = ask(key) == http.StatusTooManyRequests
				}
				if got := ask(banned); got != http.StatusForbidden {
					t.Errorf("status %d during a ban, want 403", got)
				}
			}
		})
	}
	for i := range 20 {
		time.Sleep(100 * time.Millisecond)
		load(i + 1)
	}
	close(stop)
	group.Wait()
	client.CloseIdleConnections()
	want := []string{"api " + banned}
	for _, keys := range denied {
		for key, is := range keys {
			if is {
				want = append(want, "api "+key)
			}
		}
	}
	t.Logf("%d keys were denied during 20 reloads", len(want)-1)
	if len(want) < 100 {
		t.Fatal("which proves nothing")
	}
	redis := server.Client(t)
	caddyrun.Eventually(t, 20*time.Second, "each denial has led to a ban", func() bool {
		return !slices.Contains(redis.HMGet(t.Context(), "sw:{bans}", want...).Val(), nil)
	})
}
