package load

import (
	"hash/maphash"
	"net/netip"
)

// Client tells clients apart. The Clients of two may be equal, which is rare and cannot be provoked.
type Client uint64

var clientSeed = maphash.MakeSeed()

// ClientOf returns the Client with a key.
func ClientOf(key string) Client { return Client(maphash.String(clientSeed, key)) }

// ClientAt returns the Client at an address. Addresses of IPv6 with the same first 64 bits are one client: that is
// what a host gets.
func ClientAt(address string) Client {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return ClientOf(address)
	}
	from := addr.As16()
	if addr.Unmap().Is4() {
		return Client(maphash.Bytes(clientSeed, from[:]))
	}
	return Client(maphash.Bytes(clientSeed, from[:8]))
}
