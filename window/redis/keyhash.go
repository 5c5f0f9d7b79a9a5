package redis

import (
	"encoding/base64"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
)

// AppendKeyHash implements engine.KeyHasher.
func (s *Store) AppendKeyHash(dst []byte, key string) []byte {
	sum := s.namings[0].sum(key)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:])
}

// HashesKeys implements engine.KeyHasher.
func (s *Store) HashesKeys() bool { return s.namings[0].hash != nil }

var _ engine.KeyHasher = (*Store)(nil)
