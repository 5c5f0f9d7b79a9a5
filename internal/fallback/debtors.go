package fallback

import (
	"container/list"
	"math"
	"slices"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// maxDebtors bounds the counters of a shard that are booked in the background: 65,536 in
// all, of some 300 bytes each. Further counters are booked when they are asked for.
const maxDebtors = 1 << 10

// debtors lists counters on which units are owed, or that have corrections, with what it takes
// to book them. The list may hold counters with neither any more.
type debtors struct {
	byHash map[uint64]*list.Element // of *debtor
	queue  list.List                // in the order in which they are booked
}

// debtor is a counter on which units are owed.
type debtor struct {
	hash   uint64
	charge window.Charge // the one that looks back furthest; without cost and fields
	due    int64         // ms: not booked in the background before
	late   *corrections  // nil: none
}

// owe notes units that were admitted here, and that the store does not have. The shard's
// lock must be held.
func (c *Counts) owe(s *shard, hash uint64, charge *window.Charge, units int64) {
	if d := c.debtor(s, hash, charge); d != nil {
		charge = &d.charge
	}
	c.owed.add(charge, units)
	c.bookLater()
}

// debtor returns the debtor of a charge, and adds it unless there are too many. The
// shard's lock must be held.
func (c *Counts) debtor(s *shard, hash uint64, charge *window.Charge) *debtor {
	if s.debtors == nil {
		s.debtors = &debtors{byHash: make(map[uint64]*list.Element)}
	}
	if e := s.debtors.byHash[hash]; e != nil {
		d := e.Value.(*debtor)
		d.update(charge)
		return d
	}
	if len(s.debtors.byHash) >= c.mostDebtors {
		c.evict(s)
	}
	if len(s.debtors.byHash) >= c.mostDebtors {
		return nil
	}
	d := &debtor{hash: hash, charge: lasting(charge), due: c.now()}
	s.debtors.byHash[hash] = s.debtors.queue.PushBack(d)
	c.listed.Add(1)
	return d
}

// lasting returns a copy that outlives the request, without what only the request has.
func lasting(c *window.Charge) window.Charge {
	own := *c
	own.Key, own.Policies = strings.Clone(c.Key), slices.Clone(c.Policies)
	own.Cost, own.Fields = 0, nil
	return own
}

// update makes d's charge the newest of those that look back furthest.
func (d *debtor) update(c *window.Charge) {
	old := &d.charge
	if old.Algorithm == c.Algorithm && old.Pack == c.Pack && old.Lease == c.Lease && slices.Equal(old.Policies, c.Policies) {
		return
	}
	if counter(c).Policies[0].Window >= counter(old).Policies[0].Window {
		d.charge = lasting(c)
	}
}

// takeOwed returns what is owed on a counter, and forgets it. The shard's lock must be
// held.
func (c *Counts) takeOwed(s *shard, hash uint64, charge *window.Charge) int64 {
	if e := s.owing(hash); e != nil {
		charge = &e.Value.(*debtor).charge
	}
	return c.owed.takeOut(charge)
}

// paid takes a counter off the list, unless something is owed on it. The shard's lock must
// be held.
func (c *Counts) paid(s *shard, hash uint64) {
	if e := s.owing(hash); e != nil && c.settledWith(e.Value.(*debtor)) {
		c.strike(s, e)
	}
}

// settledWith reports whether nothing is owed on a debtor, and nothing is to be corrected.
func (c *Counts) settledWith(d *debtor) bool { return d.late == nil && c.owed.of(&d.charge) == 0 }

// owing returns the element of a counter, or nil. The lock must be held.
func (s *shard) owing(hash uint64) *list.Element {
	if s.debtors == nil {
		return nil
	}
	return s.debtors.byHash[hash]
}

// strike takes a debtor off the list. The shard's lock must be held.
func (c *Counts) strike(s *shard, e *list.Element) {
	s.debtors.queue.Remove(e)
	delete(s.debtors.byHash, e.Value.(*debtor).hash)
	c.listed.Add(-1)
}

// evict takes a debtor off the list on which nothing is owed any more, if it finds one
// among a few. The shard's lock must be held.
func (c *Counts) evict(s *shard) {
	looked := 0
	for _, e := range s.debtors.byHash {
		if c.settledWith(e.Value.(*debtor)) {
			c.strike(s, e)
			return
		}
		if looked++; looked == 8 {
			return
		}
	}
}

// first returns the debtor that has been due for longest at a time in ms, or nil. It puts
// the debtor off until again, for the case that booking it fails.
func (c *Counts) first(now, again int64) *debtor {
	k := c.table()
	for c.listed.Load() > 0 {
		var from *shard
		earliest := int64(math.MaxInt64)
		for i := range k.shards {
			s := &k.shards[i]
			s.mu.Lock()
			if e := s.front(); e != nil {
				if due := e.Value.(*debtor).due; due <= now && due < earliest {
					from, earliest = s, due
				}
			}
			s.mu.Unlock()
		}
		if from == nil {
			return nil
		}
		if d := c.putOff(from, now, again); d != nil {
			return d
		}
	}
	return nil
}

// putOff puts off the first debtor of a shard, if it is due. It returns a copy, or nil
// if nothing is owed on it any more.
func (c *Counts) putOff(s *shard, now, again int64) *debtor {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.front()
	if e == nil || e.Value.(*debtor).due > now {
		return nil
	}
	d := e.Value.(*debtor)
	if c.settledWith(d) {
		c.strike(s, e)
		return nil
	}
	d.due = again
	s.debtors.queue.MoveToBack(e)
	own := *d
	return &own
}

// front returns the first element of the list, or nil. The lock must be held.
func (s *shard) front() *list.Element {
	if s.debtors == nil {
		return nil
	}
	return s.debtors.queue.Front()
}
