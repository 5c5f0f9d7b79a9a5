// Package storagetest has a storage for overrides, for tests.
package storagetest

import (
	"context"
	"io/fs"
	"maps"
	"sync"
)

// Storage is a storage of Caddy's in memory, that can fail.
type Storage struct {
	// Before is called before a file is written, with the number of such calls before this one. It may be nil.
	Before func(call int)
	// BeforeLoad is called before a file is read. It may be nil.
	BeforeLoad func()

	mu    sync.Mutex
	fails error
	calls int
	files map[string][]byte
}

func (s *Storage) Store(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	call := s.calls
	s.calls++
	s.mu.Unlock()
	if s.Before != nil {
		s.Before(call)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = make(map[string][]byte)
	}
	s.files[key] = value
	return s.fails
}

func (s *Storage) Load(_ context.Context, key string) ([]byte, error) {
	if s.BeforeLoad != nil {
		s.BeforeLoad()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, ok := s.files[key]; ok {
		return text, s.fails
	}
	return nil, fs.ErrNotExist
}

// Fail makes all calls return err from now on.
func (s *Storage) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// Copy returns a storage that holds the same files.
func (s *Storage) Copy() *Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Storage{files: maps.Clone(s.files)}
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
