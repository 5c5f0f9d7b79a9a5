package redis

import (
	"context"
	"errors"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// Parts implements engine.Parted: the parts of a Cluster are its nodes, by address. Where
// the client does not know yet which node holds what, and for a single server, the name is empty.
func (s *Store) Parts(charges []window.Charge, names []string) []string {
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

// lookAgain has the client of a Cluster ask anew, off the path of requests, which node
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
