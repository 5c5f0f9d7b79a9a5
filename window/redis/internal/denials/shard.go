package denials

import "sync"

// denialShard holds the denials whose keys have the same hash.
type denialShard struct {
	mu    sync.Mutex // guards all
	byKey map[string]*denial
	bytes int
	_     [64]byte // keeps the locks of two shards apart
}

func (s *denialShard) add(one *denial) {
	if old := s.byKey[one.key]; old != nil {
		s.drop(old)
	}
	if s.byKey == nil {
		s.byKey = make(map[string]*denial)
	}
	s.byKey[one.key] = one
	s.bytes += one.size()
}

func (s *denialShard) drop(one *denial) {
	delete(s.byKey, one.key)
	s.bytes -= one.size()
}
