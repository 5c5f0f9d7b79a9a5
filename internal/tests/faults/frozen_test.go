package faults_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// TestFrozen stops one of two Caddys, which holds a lease, for longer than the window, while the
// other one uses the limit up: the first lets nothing pass when it wakes up, and says that units
// were missing.
func TestFrozen(t *testing.T) {
	const limit = 100
	for _, algorithm := range []string{"zset", "log", "slices"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			r := startRemote(t)
			start := func() (*caddyrun.Process, func(n int) int) {
				address, client := caddyrun.FreeAddress(t), caddyrun.NewClient(t)
				p := caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	sliding_window {
		store %s
		on_error deny
	}
}
http://%s {
	handle / {
		sliding_window {
			zone leased {
				key {header.X-Key}
				limit %d 4s
				algorithm %s
				lease 16 2s
			}
		}
		respond ok
	}
}
`, storeWithin(r, time.Second), address, limit, algorithm), address)
				return p, func(n int) (passed int) {
					for range n {
						if caddyrun.MustGet(t, client, address, "key").Status == http.StatusOK {
							passed++
						}
					}
					return passed
				}
			}
			frozen, ask := start()
			_, askOther := start()
			if got := ask(20); got != 20 { // the last five from a lease of 16
				t.Fatalf("%d of 20 pass", got)
			}
			frozen.Stop()
			time.Sleep(8500 * time.Millisecond) // the end of all that was used, and a slice more
			if got := askOther(2 * limit); got != limit {
				t.Errorf("%d pass a window later, want %d", got, limit)
			}
			frozen.Cont()
			if got := ask(limit); got != 0 {
				t.Errorf("%d pass when another has used the limit up, want none", got)
			}
			frozen.Logged(t, "units that were used of a lease were missing")
		})
	}
}
