package redis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strconv"
	"sync"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// format is the number of the format in which counters are kept, with what follows it in
// the name of every key. Raise it when a script writes a key otherwise than before: all
// counters then start afresh, and what is kept of them expires. TestFormat tells.
const format = "1-"

// packedTogether is the mean number of counters in a hash. Redis keeps more than twice that
// number in the encoding of a small hash: counters are not spread evenly.
const packedTogether = 48

// naming makes the names that counters have in Redis.
type naming struct {
	prefix string   // with the format
	hash   *keyHash // nil: names hold the keys unchanged
}

// newNamings returns how counters are named: one way, or two while the secret
// changes, of which the former comes last. A counter is then kept under both names:
// those who know only one of the secrets see all that is spent.
func newNamings(o Options) []naming {
	current := naming{prefix: o.Prefix + ":" + format, hash: newKeyHash(o.KeySecret)}
	if o.FormerKeySecret == "" {
		return []naming{current}
	}
	return []naming{current, {prefix: current.prefix, hash: newKeyHash(o.FormerKeySecret)}}
}

// appendKey appends the name of the key that holds the charge's counter, which for a
// packed one is a hash that it shares with others of its zone:
//
//	<prefix>:<format>-<algorithm>:<zone>:<key>
//	<prefix>:<format>-pack-<algorithm>:<zone>:<number of hashes>:<number of the hash>
//
// With a secret, the key is replaced by its HMAC-SHA256 in URL-safe base64.
func (n *naming) appendKey(dst []byte, c *window.Charge) []byte {
	dst = append(dst, n.prefix...)
	if c.Pack > 0 {
		return n.appendPacked(append(dst, "pack-"...), c)
	}
	return n.appendCounter(dst, c)
}

// appendNative appends the name of what CL.THROTTLE counts.
func (n *naming) appendNative(dst []byte, c *window.Charge) []byte {
	return n.appendCounter(append(append(dst, n.prefix...), "native-"...), c)
}

func (n *naming) appendCounter(dst []byte, c *window.Charge) []byte {
	if n.hash == nil {
		return engine.AppendKey(dst, c)
	}
	sum := n.hash.sum(c.Key)
	return base64.RawURLEncoding.AppendEncode(appendZone(dst, c), sum[:])
}

func (n *naming) appendPacked(dst []byte, c *window.Charge) []byte {
	hashes := (c.Pack-1)/packedTogether + 1
	sum := n.sum(c.Key)
	dst = append(strconv.AppendInt(appendZone(dst, c), hashes, 10), ':')
	return strconv.AppendUint(dst, binary.BigEndian.Uint64(sum[:8])%uint64(hashes), 10)
}

// appendZone appends the name of a counter up to its key.
func appendZone(dst []byte, c *window.Charge) []byte {
	return engine.AppendKey(dst, &window.Charge{Zone: c.Zone, Algorithm: c.Algorithm})
}

// packedField returns the name of the counter in its hash: 96 bits of the SHA-256 of
// the key, none of which choose the hash. Two of 100 million keys meet by chance
// with a probability below 2^-60, as they have to meet in a hash as well. A client
// that chooses its keys can look for one that meets another's: with 100 million of
// others, it has to try about 2^90. Two of its own it may find, and then it has one
// counter for both. With a secret it is the HMAC, and nobody can look for any.
func (n *naming) packedField(c *window.Charge) [12]byte {
	sum := n.sum(c.Key)
	return [12]byte(sum[8:20])
}

func (n *naming) sum(key string) [sha256.Size]byte {
	if n.hash == nil {
		return sha256.Sum256([]byte(key))
	}
	return n.hash.sum(key)
}

// keyHash replaces keys by their HMAC-SHA256. It is safe for concurrent use.
type keyHash struct{ states sync.Pool }

// hashState is what hashing a key takes. It is used again for others.
type hashState struct {
	mac   hash.Hash
	block [2 * sha256.BlockSize]byte // of the key
	sum   [sha256.Size]byte
}

// newKeyHash returns nil if there is no secret.
func newKeyHash(secret string) *keyHash {
	if secret == "" {
		return nil
	}
	h := new(keyHash)
	h.states.New = func() any { return &hashState{mac: hmac.New(sha256.New, []byte(secret))} }
	return h
}

func (h *keyHash) sum(key string) [sha256.Size]byte {
	s := h.states.Get().(*hashState)
	defer h.states.Put(s)
	s.mac.Reset()
	for len(key) > 0 {
		n := copy(s.block[:], key)
		_, _ = s.mac.Write(s.block[:n]) // never fails
		key = key[n:]
	}
	s.mac.Sum(s.sum[:0])
	return s.sum
}
