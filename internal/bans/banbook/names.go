package banbook

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Members have a name: signs for what they are, the zone, a blank, and a key, a network or the hash of a key. No zone has
// a blank or one of these signs.
const (
	inShadow  = '~' // the zone denies nothing
	isNetwork = '!'
	isHash    = '#' // the HMAC of a key
	isDigest  = '%' // the SHA-256 of a key that is too long
)

// longestKey is the longest key, in bytes, that is kept as it is.
const longestKey = 128

// names makes the names of members.
type names struct {
	hasher engine.KeyHasher // nil: keys are kept as they are
	former former           // nil: there is no former secret
}

// former is implemented by stores whose secret may change.
type former interface {
	HashKey(key string, n int) (sum [32]byte, ok bool)
}

func namesOf(store window.Store) (n names) {
	if h, ok := store.(engine.KeyHasher); ok && h.HashesKeys() {
		n.hasher = h
		n.former, _ = store.(former)
	}
	return n
}

// appendKey appends the name of a key.
func (n *names) appendKey(dst []byte, zone, key string, shadow bool) []byte {
	if shadow {
		dst = append(dst, inShadow)
	}
	switch {
	case n.hasher != nil:
		return n.hasher.AppendKeyHash(append(append(append(dst, isHash), zone...), ' '), key)
	case len(key) > longestKey:
		sum := sha256.Sum256([]byte(key))
		return base64.RawURLEncoding.AppendEncode(append(append(append(dst, isDigest), zone...), ' '), sum[:])
	}
	return append(append(append(dst, zone...), ' '), key...)
}

// formerName returns the name that a key had under the former secret; empty without one.
func (n *names) formerName(zone, key string, shadow bool) string {
	if n.former == nil {
		return ""
	}
	sum, ok := n.former.HashKey(key, 1)
	if !ok {
		return ""
	}
	dst := make([]byte, 0, 64)
	if shadow {
		dst = append(dst, inShadow)
	}
	dst = append(append(append(dst, isHash), zone...), ' ')
	return string(base64.RawURLEncoding.AppendEncode(dst, sum[:]))
}

// networkName returns the name of a network.
func networkName(zone, network string) string { return string(isNetwork) + zone + " " + network }

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
		switch name[0] {
		case isNetwork:
			place, name = &m.Network, name[1:]
		case isHash, isDigest:
			place, name = &m.KeyHash, name[1:]
		}
	}
	m.Zone, *place, ok = strings.Cut(name, " ")
	return m, ok && m.Zone != ""
}
