package memory

import (
	"math"
	"time"
)

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

// sweep drops the keys that have expired: a part of each shard in turn, so that
// who waits for a shard gets it before the sweeper comes back to it.
func (s *Store) sweep() {
	var rest [shardCount]int32 // slots of each shard that are still to be looked at
	for i := range rest {
		rest[i] = math.MaxInt32
	}
	for left := true; left; {
		left = false
		for i := range s.shards {
			if rest[i] > 0 {
				rest[i] = s.shards[i].sweep(s.now(), rest[i])
				left = left || rest[i] > 0
			}
		}
	}
}

// sweep looks at the last of the first n slots, and returns how many it left. It
// goes downwards, since slots move down from the end.
func (s *shard) sweep(now int64, n int32) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.len)
	end := max(0, n-sweepChunk)
	for i := n - 1; i >= end; i-- {
		if s.slot(i).expires <= now {
			s.drop(i)
		}
	}
	return end
}
