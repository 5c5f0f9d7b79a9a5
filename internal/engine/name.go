package engine

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// maxReadable is the longest zone or key, in bytes, that stays readable in the
// name of a counter.
const maxReadable = 64

// AppendKey appends the name of the charge's counter to dst:
//
//	<algorithm>:<zone>:<key>
//
// A zone or key that is short, printable ASCII and free of the characters that
// would make the name ambiguous is written unchanged. Any other is replaced by
// '#' and its SHA-256 in URL-safe base64, so that names never collide, are never
// longer than about a hundred bytes and hold no braces: no client can choose the
// Cluster slot of its key by writing a hash tag.
func AppendKey(dst []byte, c *window.Charge) []byte {
	dst = append(dst, c.Algorithm.Name()...)
	dst = append(dst, ':')
	dst = appendPart(dst, c.Zone, false)
	dst = append(dst, ':')
	return appendPart(dst, c.Key, true)
}

// appendPart appends one part. Only the last part may hold a colon.
func appendPart(dst []byte, s string, last bool) []byte {
	if isReadable(s, last) {
		return append(dst, s...)
	}
	sum := sha256.Sum256([]byte(s))
	dst = append(dst, '#')
	return base64.RawURLEncoding.AppendEncode(dst, sum[:])
}

func isReadable(s string, last bool) bool {
	if len(s) > maxReadable {
		return false
	}
	for i := range len(s) {
		switch b := s[i]; {
		case b <= ' ', b >= 0x7f, b == '{', b == '}', b == '#', b == ':' && !last:
			return false
		}
	}
	return true
}
