package banbook

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Members have a name: signs for what they are, the zone, a blank, and a key, a network or the hash of a key. No zone has
// a blank or one of these signs.
const (
	inShadow  = '~' // the zone denies nothing
	isNetwork = "!"
	isHash    = "#" // the HMAC of a key
	isDigest  = "%" // the SHA-256 of a key that is too long
)

// longestKey is the longest key, in bytes, that is kept as it is.
const longestKey = 128

// names makes the names of members.
type names struct {
	hasher overrides.Hasher // nil: keys are kept as they are
}

func namesOf(store window.Store) (n names) {
	h, ok := store.(interface {
		overrides.Hasher
		HashesKeys() bool
	})
	if ok && h.HashesKeys() {
		n.hasher = h
	}
	return n
}

// appendZone appends the name of a member up to its key.
func appendZone(dst []byte, sign, zone string, shadow bool) []byte {
	if shadow {
		dst = append(dst, inShadow)
	}
	return append(append(append(dst, sign...), zone...), ' ')
}

// of returns the name of a key.
func (n *names) of(zone, key string, shadow bool) []byte {
	switch {
	case n.hasher != nil:
		return n.hashed(0, zone, key, shadow)
	case len(key) > longestKey:
		return withSum(isDigest, zone, sha256.Sum256([]byte(key)), shadow)
	}
	return append(appendZone(nil, "", zone, shadow), key...)
}

// formerly returns the name that a key had under the former secret; nil without one.
func (n *names) formerly(zone, key string, shadow bool) []byte {
	if n.hasher == nil {
		return nil
	}
	return n.hashed(1, zone, key, shadow)
}

// hashed returns the name of a key under a secret; nil if no secret has that number.
func (n *names) hashed(secret int, zone, key string, shadow bool) []byte {
	sum, ok := n.hasher.HashKey(key, secret)
	if !ok {
		return nil
	}
	return withSum(isHash, zone, sum, shadow)
}

func withSum(sign, zone string, sum [32]byte, shadow bool) []byte {
	room := make([]byte, 0, 2+64+1+43)
	return base64.RawURLEncoding.AppendEncode(appendZone(room, sign, zone, shadow), sum[:])
}

// networkName returns the name of a network.
func networkName(zone, network string) string { return isNetwork + zone + " " + network }

// member is what a name says. One of Key, KeyHash and Network is set, but for the empty key.
type member struct {
	Zone, Key, KeyHash, Network string
	Shadow                      bool
}

// parseName returns what a name says. It reports false for one that no Caddy writes.
func parseName(name string) (m member, ok bool) {
	name, m.Shadow = strings.CutPrefix(name, string(inShadow))
	place := &m.Key
	if name != "" {
		switch name[:1] {
		case isNetwork:
			place, name = &m.Network, name[1:]
		case isHash, isDigest:
			place, name = &m.KeyHash, name[1:]
		}
	}
	m.Zone, *place, ok = strings.Cut(name, " ")
	return m, ok && m.Zone != ""
}
