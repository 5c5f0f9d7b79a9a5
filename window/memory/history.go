package memory

import (
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// smallSize is how many bytes of history a slot has room for: what is left of 128.
const smallSize = 70

// large is a history that does not fit into its slot.
type large struct {
	history window.History
	till    int64 // that of the horizon
	slot    int32
}

// history returns the history of the key in slot i. One that is in the slot may grow
// there as far as there is room; write has to know what became of it.
func (s *shard) history(i int32) window.History {
	if i == none {
		return nil
	}
	sl := s.slot(i)
	if sl.large == none {
		return sl.small[:sl.size]
	}
	return s.larges[sl.large].history
}

// write keeps h as the history of slot i. A large history moves back into the slot when it
// fills at most half of the room there, so that it does not move to and fro. Other large
// histories are shrunk once they are mostly empty.
func (s *shard) write(i int32, h window.History) {
	sl := s.slot(i)
	switch {
	case sl.large == none && len(h) <= smallSize:
		sl.size = uint8(copy(sl.small[:], h)) // most often onto itself
	case sl.large == none:
		s.enlarge(i, h)
	case len(h) <= smallSize/2 && s.larges[sl.large].till == 0:
		sl.size = uint8(copy(sl.small[:], h))
		s.dropLarge(sl)
	case cap(h) > 4*len(h):
		s.larges[sl.large].history = slices.Clone(h)
	default:
		s.larges[sl.large].history = h
	}
}

// enlarge keeps h, the history of the key in slot i, out of the slot.
func (s *shard) enlarge(i int32, h window.History) {
	s.slot(i).large = int32(len(s.larges))
	s.larges = append(s.larges, large{history: h, slot: i})
}

// horizon returns that of the key in slot i.
func (s *shard) horizon(i int32) horizon {
	sl := s.slot(i)
	h := horizon{window: int64(sl.keepHigh)<<32 | int64(sl.keepLow)}
	if sl.large != none {
		h.till = s.larges[sl.large].till
	}
	return h
}

// setHorizon keeps that of the key in slot i. A slot has no room for Till: a history with
// one is kept as a large one, however short.
func (s *shard) setHorizon(i int32, h horizon) {
	sl := s.slot(i)
	sl.keepLow, sl.keepHigh = uint32(h.window), uint16(h.window>>32)
	if sl.large == none && h.till != 0 {
		s.enlarge(i, slices.Clone(window.History(sl.small[:sl.size])))
	}
	if sl.large != none {
		s.larges[sl.large].till = h.till
	}
}

// dropLarge forgets the large history of a slot. The last one takes its place.
func (s *shard) dropLarge(sl *slot) {
	at, last := sl.large, len(s.larges)-1
	s.larges[at] = s.larges[last]
	s.slot(s.larges[at].slot).large = at
	sl.large = none
	s.larges[last] = large{}
	s.larges = s.larges[:last]
	if cap(s.larges) > 4*last+8 {
		s.larges = slices.Clone(s.larges)
	}
}
