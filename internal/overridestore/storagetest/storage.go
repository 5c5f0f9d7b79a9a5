// Package storagetest has a storage for overrides, for tests.
package storagetest

import (
	"context"
	"io/fs"
	"sync"
)

// Storage is a storage of Caddy's in memory, that can fail.
type Storage struct {
	// Fails is what all calls return from now on. It is set while nothing uses the storage.
	Fails error

	mu    sync.Mutex
	files map[string][]byte
}

func (s *Storage) Lock(context.Context, string) error   { return s.Fails }
func (s *Storage) Unlock(context.Context, string) error { return nil }

func (s *Storage) Store(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = make(map[string][]byte)
	}
	s.files[key] = value
	return s.Fails
}

func (s *Storage) Load(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, ok := s.files[key]; ok {
		return text, s.Fails
	}
	return nil, fs.ErrNotExist
}

// Files returns the names of all files.
func (s *Storage) Files() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.files))
	for name := range s.files {
		names = append(names, name)
	}
	return names
}
