// Package naming makes the names that counters have in Redis.
package naming

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Format is the number of the format in which counters are kept, with what follows it in
// the name of every key. Raise it when a script writes a key otherwise than before: all
// counters then start afresh, and what is kept of them expires. TestFormat tells.
const Format = "2-"

// packedTogether is the mean number of counters in a hash. Redis keeps more than twice that
// number in the encoding of a small hash: counters are not spread evenly.
const packedTogether = 48

// Naming makes the names that counters have in Redis.
type Naming struct {
	prefix string   // with the format
	hash   *keyHash // nil: names hold the keys unchanged
}

// New returns how counters are named: one way, or two while the secret changes, of which the
// former comes last. A counter is then kept under both names: those who know only one of the
// secrets see all that is spent. An empty secret: names hold the keys unchanged.
func New(prefix, secret, former string) []Naming {
	current := Naming{prefix: prefix + ":" + Format, hash: newKeyHash(secret)}
	if former == "" {
		return []Naming{current}
	}
	return []Naming{current, {prefix: current.prefix, hash: newKeyHash(former)}}
}

// Hashes reports whether names hold the HMAC of keys.
func (n *Naming) Hashes() bool { return n.hash != nil }

// Fingerprint returns what tells the secret from others, and not what it is: 64 bits of an HMAC of a constant. It is empty
// without a secret.
func (n *Naming) Fingerprint() string {
	if n.hash == nil {
		return ""
	}
	sum := n.hash.sum("\x00fingerprint") // a header field or path has no NUL: no counter has this name
	return string(sum[:8])
}

// KeyBeside returns the name of a key that holds no counter, of the current format. No key of a
// counter has braces.
func (n *Naming) KeyBeside(what string) string { return n.prefix + "{" + what + "}" }

// LastingKey returns the name of a key that holds no counter, and outlives the format.
func (n *Naming) LastingKey(what string) string {
	return strings.TrimSuffix(n.prefix, Format) + "{" + what + "}"
}

// AppendKey appends the name of the key that holds the charge's counter, which for a
// packed one is a hash that it shares with others of its zone:
//
//	<prefix>:<format>-<algorithm>:<zone>:<key>
//	<prefix>:<format>-pack-<algorithm>:<zone>:<number of hashes>:<number of the hash>
//
// With a secret, the key is replaced by its HMAC-SHA256 in URL-safe base64.
func (n *Naming) AppendKey(dst []byte, c *window.Charge) []byte {
	dst = append(dst, n.prefix...)
	if c.Pack > 0 {
		return n.appendPacked(append(dst, "pack-"...), c)
	}
	return n.appendCounter(dst, c)
}

// AppendNative appends the name of what CL.THROTTLE counts.
func (n *Naming) AppendNative(dst []byte, c *window.Charge) []byte {
	return n.appendCounter(append(append(dst, n.prefix...), "native-"...), c)
}

func (n *Naming) appendCounter(dst []byte, c *window.Charge) []byte {
	if n.hash == nil {
		return engine.AppendKey(dst, c)
	}
	sum := n.hash.sum(c.Key)
	return base64.RawURLEncoding.AppendEncode(appendZone(dst, c), sum[:])
}

func (n *Naming) appendPacked(dst []byte, c *window.Charge) []byte {
	hashes := (c.Pack-1)/packedTogether + 1
	sum := n.Sum(c.Key)
	dst = append(strconv.AppendInt(appendZone(dst, c), hashes, 10), ':')
	return strconv.AppendUint(dst, binary.BigEndian.Uint64(sum[:8])%uint64(hashes), 10)
}

// appendZone appends the name of a counter up to its key.
func appendZone(dst []byte, c *window.Charge) []byte {
	return engine.AppendKey(dst, &window.Charge{Zone: c.Zone, Algorithm: c.Algorithm})
}

// PackedField returns the name of the counter in its hash: 96 bits of the SHA-256 of
// the key, none of which choose the hash. Two of 100 million keys meet by chance
// with a probability below 2^-60, as they have to meet in a hash as well. A client
// that chooses its keys can look for one that meets another's: with 100 million of
// others, it has to try about 2^90. Two of its own it may find, and then it has one
// counter for both. With a secret it is the HMAC, and no key can be looked up.
func (n *Naming) PackedField(c *window.Charge) [12]byte {
	sum := n.Sum(c.Key)
	return [12]byte(sum[8:20])
}

// Sum returns the HMAC of a key, or its SHA-256 if there is no secret.
func (n *Naming) Sum(key string) [sha256.Size]byte {
	if n.hash == nil {
		return sha256.Sum256([]byte(key))
	}
	return n.hash.sum(key)
}
