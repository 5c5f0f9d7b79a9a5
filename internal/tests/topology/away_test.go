package topology_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestNodeAway takes one node of three away, under load through Caddy, in a Cluster whose other
// nodes go on without it. Requests that need the others do not notice. The others are denied
// by on_error, and three of them wait at most.
func TestNodeAway(t *testing.T) {
	for name, takeAway := range map[string]func(*redistest.Server){
		"Killed": (*redistest.Server).Kill,
		"Hung":   (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) { testNodeAway(t, takeAway, name == "Hung") })
	}
}

const (
	awayTimeout = 300 * time.Millisecond
	awayLasts   = 5 * time.Second
)

func testNodeAway(t *testing.T, takeAway func(*redistest.Server), hung bool) {
	nodes := redistest.StartCluster(t, 3)
	for _, node := range nodes {
		if err := node.Client(t).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err(); err != nil {
			t.Fatal(err)
		}
	}
	gone := nodes[2]
	address := caddyrun.FreeAddress(t)
	caddy := caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	metrics
	persist_config off
	auto_https off
}
http://%s {
	handle / {
		sliding_window {
			zone site {
				key {header.X-Key}
				limit 1000000 1h
				algorithm slices
			}
			store redis {
				address %s %s
				timeout %s
			}
			on_error deny
		}
	}
	respond ok
}
`, address, nodes[0].Addr, nodes[1].Addr, awayTimeout), address)
	client := caddyrun.NewClient(t)
	keys := make(map[bool][]string) // by whether they are on the node
	for i := 0; len(keys[true]) < 20 || len(keys[false]) < 40; i++ {
		one := window.Charge{Zone: "site", Key: strconv.Itoa(i), Algorithm: window.Slices{}}
		name := string(engine.AppendKey([]byte("sw:2-"), &one))
		own := gone.Client(t).Exists(t.Context(), name).Err() == nil
		keys[own] = append(keys[own], one.Key)
	}
	caddyrun.Eventually(t, patience, "the limiter decides", func() bool {
		answer, err := caddyrun.Get(client, address, keys[true][0])
		return err == nil && answer.Status == http.StatusOK
	})
	caddy.Log.Reset()

	takeAway(gone)
	var group sync.WaitGroup
	var mu sync.Mutex
	statuses := map[bool]map[int]int{true: {}, false: {}}
	slow, slowest := 0, map[bool]time.Duration{}
	for worker := range 8 {
		group.Go(func() {
			own := worker%4 == 0 // one in four needs the node
			start := time.Now()
			for n := worker; time.Since(start) < awayLasts; n++ {
				asked := time.Now()
				answer, err := caddyrun.Get(client, address, keys[own][n%len(keys[own])])
				took := time.Since(asked)
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				statuses[own][answer.Status]++
				slowest[own] = max(slowest[own], took)
				if own && took > awayTimeout/2 {
					slow++
				}
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	group.Wait()
	open := func(node string) bool {
		text := caddyrun.Fetch(t, client, "http://"+caddy.Admin+"/metrics")
		return regexp.MustCompile(`(?m)^caddy_sliding_window_breaker_open\{node="` + regexp.QuoteMeta(node) + `",store="[^"]*"\} 1$`).MatchString(text)
	}
	if !open(gone.Addr) || open("") || open(nodes[0].Addr) || open(nodes[1].Addr) {
		t.Error("breaker_open is not 1 for the node that is away, and for no other")
	}
	if hung {
		gone.Cont()
	} else {
		gone.Restart(t)
	}
	caddyrun.Eventually(t, patience, "the node is used again", func() bool {
		answer, err := caddyrun.Get(client, address, keys[true][0])
		return err == nil && answer.Status == http.StatusOK
	})
	caddyrun.Eventually(t, patience, "breaker_open is 0", func() bool { return !open(gone.Addr) })

	if n := statuses[false]; len(n) != 1 || n[http.StatusOK] == 0 {
		t.Errorf("requests that need the other nodes: %v, want nothing but 200", n)
	}
	if n := statuses[true]; n[http.StatusServiceUnavailable] == 0 || n[http.StatusOK] > 0 {
		t.Errorf("requests that need the node: %v, want 503", n)
	}
	// Two ask for keys of the node at a time: what fails together counts as one failure.
	if slow > 6 {
		t.Errorf("%d requests waited for the node, want those of three failures", slow)
	}
	caddy.Logged(t, "node of the store is unavailable", "node of the store is back")
	var lines []string
	for line := range strings.Lines(caddy.Log.String()) {
		if strings.Contains(line, "sliding_window") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 || !strings.Contains(lines[0], "node of the store is unavailable") || !strings.Contains(lines[1], "node of the store is back") ||
		!strings.Contains(lines[0], strconv.Quote(gone.Addr)) || !strings.Contains(lines[1], strconv.Quote(gone.Addr)) {
		t.Errorf("log: %q, want one line when the node goes and one when it is back", lines)
	}
	t.Logf("other nodes: %v, slowest %s; the node: %v, %d waited", statuses[false], ms(slowest[false]), statuses[true], slow)
}
