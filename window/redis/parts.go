package redis

import (
	"context"
	"slices"
	"strconv"

	"github.com/slidingwindow/caddy-sliding-window/window"
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
func (s *Store) home(ctx context.Context, n *naming, c *window.Charge) string {
	if !s.cluster {
		return ""
	}
	if mode := s.native([]window.Charge{*c}); mode != window.NativeOff {
		node := s.address(ctx, string(n.appendNative(nil, c)))
		if mode == window.NativeOn || !s.lacksThrottle(node) {
			return node
		}
	}
	return s.address(ctx, string(n.appendKey(nil, c)))
}

// pingTries is how many keys are tried to find one that lives on a node: with one slot of
// 16,384, 99.9 % of nodes are found.
const pingTries = 120_000

// manyHashes is a number of packed counters that has hashes on every node.
const manyHashes = 1 << 40

// PingPart implements engine.Parted. It spends on counters that lived on the node when it
// failed: once another node holds their slots, that one answers, and the node is not needed.
func (s *Store) PingPart(ctx context.Context, node string) error {
	var charges []window.Charge
	var kinds []any
	s.doubts.Range(func(k, c any) bool {
		if k.(kind).node == node {
			kinds = append(kinds, k)
			charges = s.appendPing(ctx, charges, c.(window.Charge), node)
		}
		return true
	})
	if len(charges) == 0 {
		charges = s.appendPing(ctx, charges, pingCharge(window.Zset{}, 0), node)
	}
	if s.noThrottle.Load() {
		charges = s.appendPing(ctx, charges, pingNativeCharge, node)
	}
	if err := s.pingEach(ctx, charges); err != nil {
		return err
	}
	for _, k := range kinds {
		s.doubts.Delete(k)
	}
	s.pingKeys.Range(func(k, _ any) bool {
		if k.(kind).node == node {
			s.pingKeys.Delete(k)
		}
		return true
	})
	return nil
}

// appendPing appends a charge like c with a key that lives on a node, if there is one. It is
// the same key until the node has answered.
func (s *Store) appendPing(ctx context.Context, charges []window.Charge, c window.Charge, node string) []window.Charge {
	k := kind{c.Algorithm, c.Pack > 0, node}
	if c.Pack > 0 {
		c.Pack = manyHashes
	}
	if key, ok := s.pingKeys.Load(k); ok {
		c.Key = key.(string)
		return append(charges, c)
	}
	for n := range pingTries {
		c.Key = "ping" + strconv.Itoa(n)
		if s.home(ctx, &s.namings[0], &c) == node {
			s.pingKeys.Store(k, c.Key)
			return append(charges, c)
		}
	}
	return charges
}
