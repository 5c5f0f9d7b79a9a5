package template

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// ParseTier reads the leading bits of the networks of a tier, as in 24/48.
func ParseTier(text string) (p Prefixes, err error) {
	v4, v6, ok := strings.Cut(text, "/")
	if p.V4, err = strconv.Atoi(v4); ok && err == nil {
		p.V6, err = strconv.Atoi(v6)
	}
	switch {
	case !ok || err != nil:
		return p, errors.New("a tier is the leading bits of IPv4 and of IPv6 addresses; write tier 24/48, or others")
	case p.V4 < 0 || p.V4 > 32 || p.V6 < 0 || p.V6 > 128:
		return p, errors.New("the bits of a tier must be from 0 to 32 of IPv4, and from 0 to 128 of IPv6")
	}
	return p, nil
}

// String writes the bits as ParseTier reads them.
func (p Prefixes) String() string { return strconv.Itoa(p.V4) + "/" + strconv.Itoa(p.V6) }

// IsWider reports whether networks of p hold several of o, of IPv4 and of IPv6.
func (p Prefixes) IsWider(o Prefixes) bool { return p.V4 < o.V4 && p.V6 < o.V6 }

// bits returns those of the family of an address.
func (p Prefixes) bits(a netip.Addr) int {
	if a.Is4() {
		return p.V4
	}
	return p.V6
}

// NetworkOf returns the network of a key that is an address, or a narrower network. It reports false for other keys.
func (p Prefixes) NetworkOf(key string) (string, bool) {
	text, _, _ := strings.Cut(key, "/")
	addr, ok := normalize.Address(text)
	if !ok {
		return "", false
	}
	network, _ := addr.Prefix(p.bits(addr)) // the range of bits was checked at load
	return network.String(), true
}

// HasNetwork reports whether a key is one of the networks.
func (p Prefixes) HasNetwork(key string) bool {
	network, err := netip.ParsePrefix(key)
	return err == nil && network.Bits() == p.bits(network.Addr()) && network.Masked().String() == key
}
