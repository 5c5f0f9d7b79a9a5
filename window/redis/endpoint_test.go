package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestUnknownEndpoints makes the nodes of a Cluster tell no host: they are at the host that was asked.
// Slots move, so that a redirect has no host either.
func TestUnknownEndpoints(t *testing.T) {
	nodes := redistest.StartCluster(t, 2)
	for _, node := range nodes {
		if err := node.Client(t).ConfigSet(t.Context(), "cluster-preferred-endpoint-type", "unknown-endpoint").Err(); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *redis.Store {
		// No loopback address, for which a host would not be needed.
		return newStore(t, redis.Options{Addresses: []string{strings.Replace(nodes[0].Addr, "127.0.0.1", "localhost", 1)}, Cluster: true, Timeout: patience})
	}
	s := open()
	for i := range 20 {
		take(t, s, charge("zone", fmt.Sprint(i), 1, time.Hour))
	}
	var slots []int
	for slot := range 8192 {
		slots = append(slots, slot)
	}
	redistest.MoveSlots(t, nodes, nodes[0], nodes[1], slots...)
	for i := range 20 {
		c := charge("zone", fmt.Sprint(i), 2, time.Hour)
		take(t, s, c, charge("zone", fmt.Sprint("other", i), 2, time.Hour))
	}
}

// TestNoHostnames has the nodes of a Cluster prefer host names, of which they have none: the error
// says what to set.
func TestNoHostnames(t *testing.T) {
	node := redistest.StartCluster(t, 1)[0]
	node.Client(t).ConfigSet(t.Context(), "cluster-preferred-endpoint-type", "hostname")
	s := newStore(t, redis.Options{Addresses: []string{node.Addr}, Cluster: true, Timeout: patience})
	_, err := s.Take(t.Context(), []window.Charge{charge("zone", "key", 1, time.Hour)})
	if !errors.Is(err, window.ErrUnavailable) || errors.Is(err, window.ErrUnknown) || !strings.Contains(err.Error(), "cluster-announce-hostname") {
		t.Errorf("Take = %v, want ErrUnavailable that names cluster-announce-hostname", err)
	}
	node.Client(t).ConfigSet(t.Context(), "cluster-announce-hostname", "localhost")
	eventually(t, patience, "a decision, once there is a host name", func() bool {
		_, err := s.Take(t.Context(), []window.Charge{charge("zone", "key", 9, time.Hour)})
		return err == nil
	})
}
