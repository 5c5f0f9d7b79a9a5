package redis

import (
	"encoding/base64"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// AppendKeyHash implements window.KeyHasher.
func (s *Store) AppendKeyHash(dst []byte, key string) []byte {
	sum := s.namings[0].sum(key)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:])
}

// HashesKeys implements window.KeyHasher.
func (s *Store) HashesKeys() bool { return s.namings[0].hash != nil }

var _ window.KeyHasher = (*Store)(nil)
