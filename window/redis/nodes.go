package redis

import (
	"context"
	"errors"
	"slices"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Parts implements engine.Parted: the parts of a Cluster are its nodes, by address. Where
// the client does not know yet which node holds what, and for a single server, the name is empty.
func (s engineStore) Parts(charges []window.Charge, names []string) []string {
	first := len(names)
	if !s.cluster || !s.placed.Load() {
		return append(names, "")
	}
	for i := range charges {
		for k := range s.namings {
			if node := s.home(context.Background(), &s.namings[k], &charges[i]); !slices.Contains(names[first:], node) {
				names = append(names, node)
			}
		}
	}
	return names
}

// home returns the address of the node of a Cluster that decides on a charge, and "" for a
// single server.
func (s *Store) home(ctx context.Context, n *naming.Naming, c *window.Charge) string {
	if !s.cluster {
		return ""
	}
	if mode := s.native([]window.Charge{*c}); mode != window.NativeOff {
		node := s.address(ctx, string(n.AppendNative(nil, c)))
		if mode == window.NativeOn || !s.lacksThrottle(node) {
			return node
		}
	}
	return s.address(ctx, string(n.AppendKey(nil, c)))
}

// address returns that of the node of a Cluster that holds key, and "" for a
// single server.
func (s *Store) address(ctx context.Context, key string) string {
	if c, ok := s.client.(*goredis.ClusterClient); ok {
		if node, err := c.MasterForKey(ctx, key); err == nil {
			if !s.placed.Load() {
				s.placed.Store(true)
			}
			return node.Options().Addr
		}
	}
	return ""
}

// lookAgain makes the client of a Cluster ask anew, off the path of requests, which node
// holds what, if a call got no answer: its node may be gone, and a replica in its
// place. No node says so to one who does not ask. While it gets answers, the client asks
// five times a second at most.
func (s *Store) lookAgain(ctx context.Context, calls []*wire.Call) {
	c, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return
	}
	for _, one := range calls {
		var reply goredis.Error
		if one.Err != nil && (!errors.As(one.Err, &reply) || goredis.IsClusterDownError(one.Err)) {
			c.ReloadState(ctx)
			return
		}
	}
}

// HasPart implements engine.Parted.
func (s engineStore) HasPart(name string) bool {
	masters := s.masters.Load()
	return name == "" || masters == nil || slices.Contains(*masters, name)
}

// metNode is called for each node that the client of a Cluster comes to know, and has those looked at that it
// knew before. It does not wait. Before the client has placed a key, it knows no other nodes, and nothing is looked at.
func (s *Store) metNode() {
	if !s.placed.Load() || s.met.Add(1) > 1 {
		return
	}
	s.background.Run(func() {
		for n := int64(0); !s.met.CompareAndSwap(n, 0); {
			n = s.met.Load()
			s.lookAtNodes()
		}
	})
}

// lookAtNodes asks which nodes of a Cluster hold slots, and forgets the others.
func (s *Store) lookAtNodes() {
	ctx, cancel := context.WithTimeout(s.background.Context, s.timeout)
	defer cancel()
	_ = s.each(ctx, func(context.Context, *goredis.Client) error { return nil }) // the next look may succeed
}

// each calls ask for the only server, or side by side for the nodes of a Cluster that hold slots. It forgets the other nodes.
func (s *Store) each(ctx context.Context, ask func(context.Context, *goredis.Client) error) error {
	c, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return ask(ctx, s.client.(*goredis.Client))
	}
	var mu sync.Mutex // guards masters
	var masters []string
	err := c.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		mu.Lock()
		masters = append(masters, node.Options().Addr)
		mu.Unlock()
		return ask(ctx, node)
	})
	s.keepNodes(masters)
	return err
}

// keepNodes forgets what belongs to nodes of a Cluster that hold no slots any more. Requests that wait in the
// Batcher of such a node are decided on by it.
func (s *Store) keepNodes(masters []string) {
	if len(masters) == 0 {
		return
	}
	s.masters.Store(&masters)
	for _, all := range []*sync.Map{&s.batchers, &s.scriptOnly, &s.doubts, &s.pingKeys} {
		all.Range(func(k, _ any) bool {
			node, ok := k.(string)
			if !ok {
				node = k.(kind).node
			}
			if !(engineStore{s}).HasPart(node) {
				all.Delete(k)
			}
			return true
		})
	}
}
