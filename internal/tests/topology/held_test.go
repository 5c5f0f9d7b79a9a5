package topology_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/heldtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestHeldOverAFailover lets two processes hold all that they may of a counter when its master is killed. The replica that takes
// its place lacks the last changes, and counts none of the processes that it has not heard of for their lease. What they admit
// above the limit is at most what they held, and nothing more a second after both use the new master.
func TestHeldOverAFailover(t *testing.T) {
	const limit = 10
	charge := window.Charge{Zone: "held", Key: "0", Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: limit, Window: 2 * time.Second}}}
	for name, start := range map[string]func(t *testing.T) replicated{
		"Sentinel": func(t *testing.T) replicated { return startWatched(t) },
		"Cluster": func(t *testing.T) replicated {
			c := &failing{cluster: startCluster(t)}
			// The counter is on the first node, which is the one with a replica.
			owner := c.owners[c.slot(charge)]
			for i, node := range c.nodes {
				if node == owner {
					c.nodes[0], c.nodes[i] = c.nodes[i], c.nodes[0]
				}
			}
			c.replica = redistest.AddReplica(t, c.cert, c.nodes, c.nodes[0])
			c.allow(c.replica)
			c.options.Addresses = []string{c.nodes[1].TLSAddr, c.nodes[2].TLSAddr}
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			o, master, replicas := r.parts()
			c := heldtest.New(limit)
			var gone atomic.Int64 // when the master went
			used := make([]atomic.Int64, 2)
			var processes []heldtest.Process
			for i := range used {
				s := newStore(t, o, timeout)
				processes = append(processes, heldtest.Process{
					Take: func() bool {
						began := time.Now().UnixNano()
						ds, err := s.Take(t.Context(), []window.Charge{charge})
						if at := gone.Load(); err == nil && at > 0 && began > at {
							used[i].CompareAndSwap(0, time.Now().UnixNano())
						}
						return err == nil && window.Allowed(ds)
					},
					Free: func() { _ = s.GiveBack(t.Context(), charge, 0, 1) },
				})
			}
			free := c.Keep(t, 3, processes...)
			end := c.Press(t, processes...)
			eventually(t, "all is held", func() bool { open, n := c.Now(); return open == limit && n > limit })
			follow(t, master, len(replicas))
			master.CutReplicas(t)
			_, before := c.Now()
			eventually(t, "the master counts alone", func() bool { open, n := c.Now(); return open == limit && n > before+limit })
			master.Kill()
			gone.Store(time.Now().UnixNano())
			eventually(t, "the new master is used", func() bool { return used[0].Load() > 0 && used[1].Load() > 0 })
			back := time.Unix(0, max(used[0].Load(), used[1].Load()))
			_, before = c.Now()
			eventually(t, "all is held again", func() bool { open, n := c.Now(); return open >= limit && n > before+2*limit })
			c.Check(t, limit, back)
			end()
			free()
			t.Logf("used after %s", ms(back.Sub(time.Unix(0, gone.Load()))))
			holdsNone(t, o, charge)
		})
	}
}

// holdsNone holds that the server counts nothing of a charge's counter within a second.
func holdsNone(t *testing.T, o redis.Options, charge window.Charge) {
	t.Helper()
	s := newStore(t, o, patience)
	start := time.Now()
	eventually(t, "nothing is held", func() bool {
		ds, err := s.Peek(t.Context(), []window.Charge{charge})
		return err == nil && ds[0].Remaining == ds[0].Limit
	})
	if took := time.Since(start); took > heldtest.Healed {
		t.Errorf("all is free after %s, want at once", took)
	}
}
