package topology_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// site is a Caddy before a Cluster, with clients who ask for one key after the other,
// together, and for each more often than its limit allows.
type site struct {
	*testing.T
	asked atomic.Int64
	stop  chan struct{}
	once  sync.Once // closes stop
	group sync.WaitGroup

	mu       sync.Mutex // guards statuses
	statuses map[int64]map[int]int
}

const (
	siteClients = 4
	siteLimit   = 10
	// siteAsks is how often each key is asked for.
	siteAsks = 3 * siteLimit
	// sitePause is how long a client rests between two requests.
	sitePause = 8 * time.Millisecond
)

// startSite begins to ask.
func startSite(t *testing.T, c *cluster) *site {
	s := &site{T: t, stop: make(chan struct{}), statuses: make(map[int64]map[int]int)}
	address := caddyrun.FreeAddress(t)
	caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
}
http://%s {
	handle / {
		sliding_window {
			zone site {
				key {header.X-Key}
				limit %d 1h
			}
			store redis {
				address %s
				cluster
				username %s
				password %s
				prefix %s
				timeout 5s
				tls {
					ca %s
				}
			}
			on_error deny
		}
	}
	respond ok
}
`, address, siteLimit, c.options.Addresses[0], username, password, prefix, c.cert.CA()), address)
	client := caddyrun.NewClient(t)
	t.Cleanup(s.halt) // before Caddy ends
	for range siteClients {
		s.group.Go(func() {
			for {
				select {
				case <-s.stop:
					return
				case <-time.After(sitePause):
				}
				key := (s.asked.Add(1) - 1) / siteAsks
				answer, err := caddyrun.Get(client, address, strconv.FormatInt(key, 10))
				if err != nil {
					t.Error(err)
					continue
				}
				s.mu.Lock()
				if s.statuses[key] == nil {
					s.statuses[key] = make(map[int]int)
				}
				s.statuses[key][answer.Status]++
				s.mu.Unlock()
			}
		})
	}
	return s
}

// halt stops to ask. It may be called more than once.
func (s *site) halt() {
	s.once.Do(func() { close(s.stop) })
	s.group.Wait()
}

// end stops asking, and fails the test unless the limit passed of each key, and all other
// requests were denied.
func (s *site) end() {
	s.Helper()
	s.halt()
	last := s.asked.Load() / siteAsks // was not asked for often enough
	for key, statuses := range s.statuses {
		want := map[int]int{http.StatusOK: siteLimit, http.StatusTooManyRequests: siteAsks - siteLimit}
		for status, n := range statuses {
			if n != want[status] && key != last || want[status] == 0 {
				s.Errorf("key %d: %d answers with status %d; want %v", key, n, status, want)
			}
		}
	}
	if last == 0 {
		s.Error("no key was asked for often enough")
	}
	s.Logf("%d requests through Caddy, on %d keys", s.asked.Load(), len(s.statuses))
}
