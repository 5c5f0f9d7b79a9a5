package redis

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// packedTogether is how many counters a hash is meant to hold: about half as many
// as Redis keeps in the encoding of a small hash, as they are not spread evenly.
const packedTogether = 64

// appendKey appends the name of the key that holds the charge's counter, which for a
// packed one is a hash that it shares with others of its zone:
//
//	pack-<algorithm>:<zone>:<number of hashes>:<number of the hash>
func appendKey(dst []byte, c *window.Charge) []byte {
	if c.Pack <= 0 {
		return window.AppendKey(dst, c)
	}
	hashes := (c.Pack-1)/packedTogether + 1
	sum := sha256.Sum256([]byte(c.Key))
	shared := window.Charge{Zone: c.Zone, Algorithm: c.Algorithm}
	dst = window.AppendKey(append(dst, "pack-"...), &shared)
	dst = append(strconv.AppendInt(dst, hashes, 10), ':')
	return strconv.AppendUint(dst, binary.BigEndian.Uint64(sum[:8])%uint64(hashes), 10)
}

// packedField returns the name of the counter in its hash: 96 bits of the SHA-256 of
// the key, none of which choose the hash. Two of 100 million keys meet by chance
// with a probability below 2^-60, as they have to meet in a hash as well. A client
// that chooses its keys can look for one that meets another's: with 100 million of
// others, it has to try about 2^90. Two of its own it may find, and then it has one
// counter for both.
func packedField(c *window.Charge) [12]byte {
	sum := sha256.Sum256([]byte(c.Key))
	return [12]byte(sum[8:20])
}
