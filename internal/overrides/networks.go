package overrides

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// networks find the longest network with an address. All are of IPv4, or all of IPv6.
type networks struct {
	rules   map[netip.Prefix]*Rule
	lengths []int // of the networks, longest first
}

func (n *networks) add(p netip.Prefix, r *Rule) {
	if n.rules == nil {
		n.rules = make(map[netip.Prefix]*Rule)
	}
	n.rules[p] = r.over(n.rules[p])
	at, found := slices.BinarySearchFunc(n.lengths, p.Bits(), func(a, b int) int { return cmp.Compare(b, a) })
	if !found {
		n.lengths = slices.Insert(n.lengths, at, p.Bits())
	}
}

// with returns the rules of the networks that hold the address, longest network first.
func (n *networks) with(a netip.Addr) iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for _, bits := range n.lengths {
			p, _ := a.Prefix(bits)
			if r := n.rules[p]; r != nil && !yield(r) {
				return
			}
		}
	}
}

// find returns the rule of the longest network that holds the address.
func (n *networks) find(a netip.Addr, c *clock) *Rule {
	for r := range n.with(a) {
		if c.live(r) {
			return r
		}
	}
	return nil
}

// longestAddress is how long an address is at most.
const longestAddress = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")

// IsAddress reports whether a key is an address, or a group of addresses, which networks may select.
func IsAddress(key string) bool {
	_, ok := AddressIn(key)
	return ok
}

// AddressIn returns the address that a key is, or the first one of a group.
func AddressIn(key string) (netip.Addr, bool) {
	text, _, _ := strings.Cut(key, "/")
	if len(text) > longestAddress {
		return netip.Addr{}, false
	}
	return normalize.Address(text)
}

// networksOf returns the networks among which those of a key are that is an address, or a group of
// addresses, and the address. It returns nil for any other key.
func (s *Set) networksOf(key string) (*networks, netip.Addr) {
	if len(s.v4.rules)+len(s.v6.rules) == 0 {
		return nil, netip.Addr{}
	}
	a, ok := AddressIn(key)
	switch {
	case !ok:
		return nil, netip.Addr{}
	case a.Is4():
		return &s.v4, a
	}
	return &s.v6, a
}
