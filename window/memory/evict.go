package memory

const (
	// candidates is how many adjacent slots the search for a key to evict looks at first.
	candidates = 32
	// farther is how many more slots the search looks at if no key among the candidates
	// may be evicted. They are spread over the shard, since keys that came together lie
	// together.
	farther = 256
	// pause is the time in ms for which a zone skips the farther slots once it has found
	// nothing there. It bounds the cost of a flood of keys that all deny.
	pause = 100
)

// claim says whose keys may be evicted for a new key. The zones of a shard share its
// slots out evenly:
//
//   - A zone below its even share takes from zones above theirs.
//   - A zone at or above its share replaces its own keys, or takes from a larger zone
//     that is above its share, until both are as large.
//
// A zone thus never loses a key to another one while it has no more than its share.
// Keys hash evenly, so what holds in a shard holds in the store.
type claim struct {
	zone  zoneID // of the new key; noZone if the zone has no key yet
	own   zoneID // its keys may go, too; noZone if they may not
	above int    // keys of zones with more slots may go
}

// noZone is the number of no zone.
const noZone = ^zoneID(0)

// claimOf returns the claim of a new key of the zone.
func (s *shard) claimOf(name zoneName) claim {
	id, present := s.zones.ids[name]
	if !present {
		return claim{zone: noZone, own: noZone, above: int(s.len) / (len(s.zones.ids) + 1)}
	}
	slots, share := s.zones.list[id].slots, int(s.len)/len(s.zones.ids)
	c := claim{zone: id, own: noZone, above: max(share, slots)}
	if slots >= share {
		c.own = id
	}
	return c
}

// claimOfAll returns the claim of a lowered cap: keys of zones at or above their share
// may go.
func (s *shard) claimOfAll() claim {
	return claim{zone: noZone, own: noZone, above: int(s.len)/len(s.zones.ids) - 1}
}

// hasRoom reports whether the shard has room for a new key, or a key to evict for it.
// If it has neither, the next search looks elsewhere.
func (s *shard) hasRoom(now int64, n *name) bool {
	if !s.full() {
		return true
	}
	c := s.claimOf(n.zone)
	if s.victim(now, c) != none {
		return true
	}
	if !s.paused(now, c) && c.zone != noZone {
		s.zones.list[c.zone].searched = now
	}
	s.advance()
	return false
}

// victim returns a slot to evict, or none. An expired key is best. Else it is the key
// that has used the smallest share of its limit, among those that c lets go.
//
// A key that denies is never evicted: no client gets rid of a denial by a flood of keys.
// The hand stays, so that insert finds the same.
func (s *shard) victim(now int64, c claim) int32 {
	best := s.search(now, c, s.hand, min(candidates, s.len), candidates)
	if rest := s.len - candidates; best == none && rest > 0 && !s.paused(now, c) {
		best = s.search(now, c, s.hand+candidates, rest, farther)
	}
	return best
}

// paused reports whether the zone of the new key has just found nothing to evict.
func (s *shard) paused(now int64, c claim) bool {
	if c.zone == noZone {
		return false
	}
	since := now - s.zones.list[c.zone].searched
	return 0 <= since && since < pause
}

// search looks for a victim in n slots, or in all if there are fewer, which are spread
// evenly over a number of slots from one on.
func (s *shard) search(now int64, c claim, from, span, n int32) int32 {
	n = min(n, span)
	best := none
	for k := range n {
		i := int32((int64(from) + int64(k)*int64(span)/int64(n)) % int64(s.len))
		sl := s.slot(i)
		switch {
		case sl.overflow || sl.busy:
		case sl.expires <= now:
			return i
		case sl.heldUntil > now:
		case sl.zone != c.own && s.zones.list[sl.zone].slots <= c.above:
		case best == none || sl.used < s.slot(best).used:
			best = i
		}
	}
	return best
}

// advance moves the hand on, past the candidates.
func (s *shard) advance() { s.hand = (s.hand + candidates) % s.len }

// makeRoom evicts a key if the store is full, and another one to get below a
// lowered cap. It returns the slot that is free then, or none.
func (s *shard) makeRoom(now int64, n *name) int32 {
	if over := s.limits.keys.Load() > s.limits.maxKeys.Load(); over && s.len > 1 && !s.slot(s.len-1).busy {
		if i := s.victim(now, s.claimOfAll()); i != none {
			s.drop(i)
		}
		s.advance()
	}
	if !s.full() {
		return none
	}
	i := s.victim(now, s.claimOf(n.zone))
	if i != none {
		s.vacate(i)
	}
	s.advance()
	return i
}
