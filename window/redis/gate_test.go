package redis_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// evalshas returns how many script calls the nodes have had.
func evalshas(t *testing.T, nodes []*redistest.Server) (n int) {
	t.Helper()
	for _, node := range nodes {
		var here int
		_, _ = fmt.Sscanf(node.Client(t).InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_evalsha"), "calls=%d,", &here)
		n += here
	}
	return n
}

// neighbours are clients of a site with a zone that all share. One of them asks all the time,
// and others have used up what they may.
type neighbours struct {
	*testing.T
	limit    int64 // of the zone that all share, in 1 s
	everyone window.Charge
}

// newNeighbours returns them with two stores on one Cluster, each as of a Caddy of its own.
func newNeighbours(t *testing.T, nodes []*redistest.Server) (n *neighbours, s, other *redis.Store) {
	prefix := freshPrefix("neighbours")
	open := func() *redis.Store {
		s := newStore(t, redis.Options{Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: prefix, Timeout: patience})
		warm(t, s, "key")
		return s
	}
	return &neighbours{T: t, limit: 50, everyone: charge("everybody", "key", 50, time.Second)}, open(), open()
}

func (n *neighbours) perClient(key string, limit int64) window.Charge {
	return charge("per_client", key, limit, time.Hour)
}

// request is one for a path of its own.
func (n *neighbours) request(client window.Charge, path string) []window.Charge {
	one := charge("path", path, 10, time.Minute)
	one.Algorithm = window.Slices{}
	return []window.Charge{n.everyone, client, one}
}

// victim asks at half the rate of the shared zone, through a store, while attack runs. It
// returns how often it asked, and how often it was denied.
func (n *neighbours) victim(s *redis.Store, attack func()) (asked, denied int) {
	n.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		attack()
	}()
	pause := time.Second / time.Duration(n.limit/2)
	for {
		select {
		case <-done:
			return asked, denied
		case <-time.After(pause):
		}
		ds, err := s.Take(n.Context(), n.request(n.perClient("victim", 1_000_000), fmt.Sprint("/victim/", asked)))
		if err != nil {
			n.Error(err)
		}
		if asked++; err == nil && !window.Allowed(ds) {
			denied++
		}
	}
}

// testClusterNeighbours lets a client that may not pass ask 400 times at once, each time for
// another path: the zone that all share is not charged for it, not even for a moment.
func testClusterNeighbours(t *testing.T, nodes []*redistest.Server) {
	for name, known := range map[string]bool{"known": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			n, s, other := newNeighbours(t, nodes)
			used := n.perClient("attacker", 1)
			if known { // to the store that is asked
				take(t, s, used)
			} else {
				take(t, other, used)
			}
			rounds, before := 0, evalshas(t, nodes)
			var passed, failed atomic.Int64
			asked, denied := n.victim(other, func() {
				for start := time.Now(); time.Since(start) < 3*time.Second; rounds++ {
					parallel(400, func(i int) {
						ds, err := s.Take(t.Context(), n.request(used, fmt.Sprint("/", rounds, "/", i)))
						switch {
						case err != nil:
							failed.Add(1)
						case window.Allowed(ds):
							passed.Add(1)
						}
					})
				}
			})
			calls := evalshas(t, nodes) - before - 3*asked
			if denied > 0 || asked < 10 || passed.Load() > 0 || failed.Load() > 0 {
				t.Errorf("of %d requests of others %d were denied, want none; of the client's, %d passed and %d failed", asked, denied, passed.Load(), failed.Load())
			}
			// Once a second with all three zones, and what is given back.
			if calls > 5*5 {
				t.Errorf("%d script calls for %d requests of one client, want some a second", calls, 400*rounds)
			}
			t.Logf("%d requests in %d rounds: %d script calls; %d of %d of others denied", 400*rounds, rounds, calls, denied, asked)
		})
	}
}

// testClusterManyNeighbours lets 1,000 clients that may not pass ask at the same time.
func testClusterManyNeighbours(t *testing.T, nodes []*redistest.Server) {
	n, s, other := newNeighbours(t, nodes)
	const clients = 1_000
	used := make([]window.Charge, clients)
	for i := range used {
		used[i] = n.perClient(fmt.Sprint("attacker", i), 1)
		take(t, s, used[i])
	}
	requests := 0
	asked, denied := n.victim(other, func() {
		for start := time.Now(); time.Since(start) < 8*time.Second; requests += clients {
			parallel(clients, func(i int) {
				if ds, err := s.Take(t.Context(), n.request(used[i], fmt.Sprint("/", requests, "/", i))); err != nil || window.Allowed(ds) {
					t.Errorf("Take = %+v, %v, want a denial", ds, err)
				}
			})
		}
	})
	if denied*100 > asked || asked < 20 {
		t.Errorf("%d of %d requests of others were denied, want 1 %% of 20 or more at most", denied, asked)
	}
	t.Logf("%d requests of %d clients; %d of %d of others denied", requests, clients, denied, asked)
}

// TestGateHung stops the node while requests are in flight and others wait for them: no request
// waits for longer than the timeout, one who goes does not wait at all, and nothing is left
// behind.
func TestGateHung(t *testing.T) {
	node := redistest.StartCluster(t, 1)[0]
	s := newStore(t, redis.Options{Addresses: []string{node.Addr}, Cluster: true, Timeout: timeout})
	warm(t, s, "key")
	request := func(i int) []window.Charge {
		return []window.Charge{charge("shared", "key", 2, time.Hour), charge("own", fmt.Sprint(i), 2, time.Hour)}
	}
	node.Stop()
	parallel(20, func(i int) {
		timed(t, func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 {
				time.AfterFunc(timeout/10, cancel)
			}
			_, err := s.Take(ctx, request(i))
			return err
		})
	})
	if flying, waiting := redis.Gate(s).Load(); flying != 0 || waiting != 0 {
		t.Errorf("%d units in flight and %d requests wait, want none", flying, waiting)
	}
	node.Cont()
	warm(t, s, "key")
	time.Sleep(2 * timeout) // for batches that were under way to end, which may charge until then
	if err := s.Reset(t.Context(), request(0)[0]); err != nil {
		t.Fatal(err)
	}
	var passed atomic.Int64
	parallel(20, func(i int) {
		ds, err := s.Take(t.Context(), request(100+i))
		if err != nil {
			t.Error(err)
		} else if window.Allowed(ds) {
			passed.Add(1)
		}
	})
	if n := passed.Load(); n != 2 {
		t.Errorf("%d passed, want 2", n)
	}
	if flying, waiting := redis.Gate(s).Load(); flying != 0 || waiting != 0 {
		t.Errorf("%d units in flight and %d requests wait, want none", flying, waiting)
	}
}
