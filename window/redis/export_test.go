package redis

import "github.com/slidingwindow/caddy-sliding-window/window"

// AskAlways has the store ask the server about every request, and returns it.
func AskAlways(s *Store) *Store {
	s.denials.longest = 0
	return s
}

// Remember has the store remember the decisions on a request as if it had asked
// just now.
func Remember(s *Store, charges []window.Charge, decisions []window.Decision) {
	s.denials.remember(s.denials.ask(), charges, decisions)
}

// Remembered returns how many denials the store remembers, and the bytes that they
// are said to take.
func Remembered(s *Store) (n, bytes int) {
	for i := range s.denials.shards {
		shard := &s.denials.shards[i]
		shard.mu.Lock()
		n += len(shard.byKey)
		bytes += shard.bytes
		shard.mu.Unlock()
	}
	return n, bytes
}

// Apart returns a charge like c on a counter that is forgotten apart from those of
// the others.
func Apart(s *Store, c window.Charge, others ...window.Charge) window.Charge {
	for i := range others {
		if s.denials.slot(&c) == s.denials.slot(&others[i]) {
			c.Key += "'"
			return Apart(s, c, others...)
		}
	}
	return c
}

// DenialBytes bounds the bytes of Remembered.
const DenialBytes = denialBytes
