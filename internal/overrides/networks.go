package overrides

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/plain"
)

// networks find the longest network with an address. All are of IPv4, or all of IPv6.
type networks struct{ nodes []network }

// network is a network, in the order of first addresses, and shorter ones first.
type network struct {
	address address
	bits    int
	parent  int // the place of the longest network that holds this one; -1 for none
	rule    *Rule
}

// address is the number of an address. One of IPv4 has its bits at the top.
type address struct{ high, low uint64 }

func addressOf(a netip.Addr) address {
	if a.Is4() {
		b := a.As4()
		return address{high: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := a.As16()
	return address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a address) compare(b address) int {
	return cmp.Or(cmp.Compare(a.high, b.high), cmp.Compare(a.low, b.low))
}

// common returns how many leading bits two addresses have in common.
func (a address) common(b address) int {
	if n := bits.LeadingZeros64(a.high ^ b.high); n < 64 {
		return n
	}
	return 64 + bits.LeadingZeros64(a.low^b.low)
}

func (n *networks) add(p netip.Prefix, r *Rule) {
	node := network{addressOf(p.Addr()), p.Bits(), -1, r}
	for i := range n.nodes {
		if o := &n.nodes[i]; o.address == node.address && o.bits == node.bits {
			o.rule = r.over(o.rule)
			return
		}
	}
	n.nodes = append(n.nodes, node)
}

// seal sorts the networks, and finds their parents.
func (n *networks) seal() {
	slices.SortFunc(n.nodes, func(a, b network) int {
		return cmp.Or(a.address.compare(b.address), cmp.Compare(a.bits, b.bits))
	})
	for i := range n.nodes {
		at := i - 1
		for at >= 0 && n.nodes[at].address.common(n.nodes[i].address) < n.nodes[at].bits {
			at = n.nodes[at].parent
		}
		n.nodes[i].parent = at
	}
}

// last returns the place of the last network that begins at or before the address; -1 for none. That one, or one that
// holds it, holds the address if any does.
func (n *networks) last(a address) int {
	low, high := 0, len(n.nodes)
	for low < high {
		if middle := (low + high) / 2; n.nodes[middle].address.compare(a) <= 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// find returns the rule of the longest network that holds the address.
func (n *networks) find(a address, c *clock) *Rule {
	for at := n.last(a); at >= 0; at = n.nodes[at].parent {
		if n.nodes[at].bits <= n.nodes[at].address.common(a) && c.live(n.nodes[at].rule) {
			return n.nodes[at].rule
		}
	}
	return nil
}

// longestAddress is how long an address is at most.
const longestAddress = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")

// networksOf returns the networks among which those of a key are that is an address, or a group of
// addresses, and the address. It returns nil for any other key.
func (s *Set) networksOf(key string) (*networks, address) {
	text, _, _ := strings.Cut(key, "/")
	if len(s.v4.nodes)+len(s.v6.nodes) == 0 || len(text) > longestAddress {
		return nil, address{}
	}
	a, ok := plain.Address(text)
	switch {
	case !ok:
		return nil, address{}
	case a.Is4():
		return &s.v4, addressOf(a)
	}
	return &s.v6, addressOf(a)
}
