package memory

import "time"

// sweepChunk is how many slots are looked at under a shard's lock in one go; it
// bounds how long a request can wait for the sweeper.
const sweepChunk = 512

// sweeper sweeps now and then until Close.
func (s *Store) sweeper(every time.Duration) {
	defer close(s.done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			s.sweep()
		}
	}
}

// sweep drops the keys that have expired.
func (s *Store) sweep() {
	for i := range s.shards {
		for from := int32(0); from >= 0; {
			from = s.shards[i].sweep(s.now(), from)
		}
	}
}

// sweep looks at a chunk of slots, and returns where the next one begins, or
// none at the end. A shard of which three quarters are free is then packed, for
// neither slots nor a map give memory back by themselves.
func (s *shard) sweep(now int64, from int32) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := min(from+sweepChunk, int32(len(s.slots)))
	for i := from; i < end; i++ {
		if sl := &s.slots[i]; sl.state != nil && sl.expires <= now {
			s.drop(i)
		}
	}
	if end < int32(len(s.slots)) {
		return end
	}
	if s.live < int32(len(s.slots))/4 && len(s.slots) > sweepChunk {
		s.pack()
	}
	return none
}

// pack moves the live slots to new memory.
func (s *shard) pack() {
	old := s.slots
	s.slots = make([]slot, 0, 2*s.live)
	s.index, s.free, s.hand = make(map[uint64]int32, s.live), none, 0
	for _, sl := range old {
		if sl.state == nil {
			continue
		}
		first, ok := s.index[sl.hash]
		if !ok {
			first = none
		}
		sl.next = first
		s.index[sl.hash] = int32(len(s.slots))
		s.slots = append(s.slots, sl)
	}
}
