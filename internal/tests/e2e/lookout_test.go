package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestStoreIsTold starts Caddy without any request: the log says whether its store can be
// reached, and why not, and what is wrong with it.
func TestStoreIsTold(t *testing.T) {
	send := func(args ...any) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, server *redistest.Server) {
			if err := server.Client(t).Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name   string
		server []string // options of redis-server
		store  string
		spoil  func(t *testing.T, server *redistest.Server)
		want   []string
		never  []string
	}{
		{
			name:  "reached",
			want:  []string{`"store is reached"`, `"version":"redis `, `"mode":"standalone"`, `"clock_offset":`, `"maxmemory_policy":"noeviction"`},
			never: []string{`"level":"warn"`},
		},
		{
			name:  "wrong password",
			store: "password wrong",
			spoil: send("CONFIG", "SET", "requirepass", "right"),
			want:  []string{`"store is unavailable; on_error decides until it is back"`, "WRONGPASS"},
			never: []string{"is reached"},
		},
		{
			name:  "wrong database",
			store: "db 99",
			want:  []string{`"store is unavailable; on_error decides until it is back"`, "DB index is out of range"},
			never: []string{"is reached"},
		},
		{
			name:  "wrong address",
			spoil: func(_ *testing.T, server *redistest.Server) { server.Kill() },
			want:  []string{`"store is unavailable; on_error decides until it is back"`, "refused"},
			never: []string{"is reached"},
		},
		{
			name:  "without the user",
			store: "username caddy\n\t\t\tpassword secret",
			want:  []string{`"store is unavailable; on_error decides until it is back"`, "WRONGPASS"},
			never: []string{"is reached"},
		},
		{
			name:   "evicts",
			server: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
			want:   []string{`"store is reached"`, "set its maxmemory-policy to noeviction"},
		},
		{
			name:   "evicts, without +info",
			server: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"},
			spoil:  send("ACL", "SETUSER", "default", "-info"),
			want:   []string{`"store is reached"`, `"version":"redis `},
			never:  []string{`"level":"warn"`, "maxmemory_policy"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t, test.server...)
			if test.spoil != nil {
				test.spoil(t, server)
			}
			caddyLog.Reset()
			if err := loadCaddy(fmt.Sprintf(`
{
	admin off
	log {
		output sliding_window_test
	}
}
http://%s {
	sliding_window site {header.X-Key} 10 1m {
		store redis {
			address %s
			%s
		}
	}
	respond ok
}
`, caddyrun.FreeAddress(t), server.Addr, test.store)); err != nil {
				t.Fatal(err)
			}
			own := func() string {
				var b strings.Builder
				for line := range strings.Lines(caddyLog.String()) {
					if strings.Contains(line, "sliding_window") {
						b.WriteString(line)
					}
				}
				return b.String()
			}
			caddyrun.Eventually(t, 20*time.Second, "the log tells all", func() bool {
				for _, text := range test.want {
					if !strings.Contains(own(), text) {
						return false
					}
				}
				return true
			})
			log := own()
			for _, text := range test.never {
				if strings.Contains(log, text) {
					t.Errorf("the log has %s:\n%s", text, log)
				}
			}
			if n := strings.Count(log, "is unavailable") + strings.Count(log, "is reached"); n != 1 {
				t.Errorf("%d lines on the state of the store, want 1:\n%s", n, log)
			}
		})
	}
}
