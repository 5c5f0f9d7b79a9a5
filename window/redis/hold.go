package redis

import (
	"sync/atomic"
	"time"
)

// holds are receipts that are still to be settled.
type holds struct {
	n       atomic.Int64
	longest atomic.Int64 // a time.Duration; see engine.Holder
}

// Hold implements engine.Holder.
func (s *Store) Hold(longest time.Duration) {
	s.holds.n.Add(1)
	for {
		before := s.holds.longest.Load()
		if int64(longest) <= before || s.holds.longest.CompareAndSwap(before, int64(longest)) {
			return
		}
	}
}

// Release implements engine.Holder.
func (s *Store) Release() { s.holds.n.Add(-1) }

// Held returns for how long, from when the store was to be closed, it has to stay open for what
// is still to be settled; 0: there is nothing.
func (s *Store) Held() time.Duration {
	if s.holds.n.Load() == 0 {
		return 0
	}
	return time.Duration(s.holds.longest.Load())
}
