package naming

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

// keyHash replaces keys by their HMAC-SHA256. It is safe for concurrent use.
type keyHash struct{ states sync.Pool }

// hashState is the memory that hashing a key takes. It is reused.
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
