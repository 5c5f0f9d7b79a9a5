// Package totals keeps what this process holds of counters, and tells the server.
package totals

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Table has a total for each counter of which this process holds units, or is about to. It is safe for concurrent use.
//
// A process holds the units that it was ever given less those that it has given back. It tells the server both sums, with
// each take and now and then by themselves; lua/concurrent.lua says what the server makes of them. A take is on its way
// until the server, or the network, has said what became of it. A total is exact, and replaces what the server has, if none
// is.
//
// If it is not known what became of a take, the server may count units that are not held. Takes of the counter wait then
// until an exact total was counted.
type Table struct {
	env     Env
	seed    maphash.Seed
	numbers atomic.Int64 // of messages
	base    atomic.Int64 // the largest entry.back of entries that are forgotten
	teller  teller
	shards  [32]shard
}

// shard holds a part of the entries. mu guards them and all that they hold; it is held for a few instructions.
type shard struct {
	mu      sync.Mutex
	entries map[name]*entry
	_       [48]byte // keeps the locks of two shards apart
}

type name struct{ zone, key string }

// entry is the total of a counter.
type entry struct {
	charge      window.Charge // of no units; its limit is that of the last request
	given, back int64         // units, since any moment; their difference is held
	added       int64         // units of given that the server was not asked for, and has not heard of
	onTheWay    int64         // units of takes
	since       time.Duration // from when units are held
	changed     time.Duration // when given or back has changed, or was in doubt
	heard       int64         // highest number that the server is known to have counted
	told        time.Duration // when a total was sent
	queued      bool          // the server is to be told
	missed      bool          // a total was sent, or is to be, that the server has not counted yet
	doubt       chan struct{} // closed when an exact total was counted; nil: what the server counts is known
	telling     telling
}

// telling is the total that is on its way.
type telling struct {
	exact  bool  // it ends the doubt
	added  int64 // what it has of entry.added
	number int64
}

func (e *entry) held() int64 { return e.given - e.back }

// Message is what a request tells the server about a counter: see lua/concurrent.lua.
type Message struct{ Number, Given, Back int64 }

// Sent is a take on its way.
type Sent struct {
	Request int // its place in the call
	entry   *entry
	number  int64
	units   int64
}

// New returns an empty table. It has no goroutine before the first message. Close it.
func New(env Env) *Table {
	t := &Table{env: env, seed: maphash.MakeSeed()}
	t.teller.init(env.Context)
	return t
}

func (t *Table) shardOf(e *entry) *shard { return t.shard(name{e.charge.Zone, e.charge.Key}) }

func (t *Table) shard(n name) *shard {
	return &t.shards[(maphash.String(t.seed, n.key)^maphash.String(t.seed, n.zone)>>1)%uint64(len(t.shards))]
}

// lock returns the entry of a charge, whose shard is locked; nil without one, unless it is to be made.
func (t *Table) lock(c *window.Charge, create bool) (*shard, *entry) {
	n := name{c.Zone, c.Key}
	s := t.shard(n)
	s.mu.Lock()
	e := s.entries[n]
	if e == nil && create {
		if s.entries == nil {
			s.entries = make(map[name]*entry)
		}
		n = name{strings.Clone(c.Zone), strings.Clone(c.Key)}
		base := t.base.Load()
		e = &entry{charge: window.Charge{Zone: n.zone, Key: n.key, Algorithm: c.Algorithm, Policies: c.Policies}, given: base, back: base}
		s.entries[n] = e
	}
	return s, e
}

// Doubt returns a channel that is closed when it is known what the server counts of a charge; nil: it is.
func (t *Table) Doubt(c *window.Charge) <-chan struct{} {
	s, e := t.lock(c, false)
	defer s.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.doubt
}

// Take returns the message of a take, and what is to be answered.
func (t *Table) Take(request int, c *window.Charge) (Message, Sent) {
	t.start()
	s, e := t.lock(c, true)
	defer s.mu.Unlock()
	e.charge.Policies = c.Policies
	e.onTheWay += c.Cost
	m := t.message(e)
	return m, Sent{request, e, m.Number, c.Cost}
}

// message returns the next message about an entry, or about a counter that has none. The lock of its shard is held, so that
// messages about an entry are numbered in the order of what they say.
func (t *Table) message(e *entry) Message {
	if e == nil {
		base := t.base.Load()
		return Message{t.numbers.Add(1), base, base}
	}
	return Message{t.numbers.Add(1), e.given, e.back}
}

// Look returns the message of a request that takes nothing, or takes under another name what is counted already.
func (t *Table) Look(c *window.Charge) Message {
	s, e := t.lock(c, false)
	defer s.mu.Unlock()
	return t.message(e)
}

// Total returns a message that tells the total of the counter, for how many ms it has held units, and which message the
// server must have counted. The age is below 0, and counted from -1 on, if the total is not exact.
func (t *Table) Total(c *window.Charge) (m Message, age, heard int64) {
	s, e := t.lock(c, false)
	defer s.mu.Unlock()
	if m = t.message(e); e == nil {
		return m, 0, 0
	}
	e.told = t.env.Now()
	if e.held() > 0 {
		age = (e.told - e.since).Milliseconds()
	}
	e.telling.added, e.telling.number = min(e.telling.added, e.added), min(e.telling.number, m.Number)
	if e.onTheWay > 0 {
		e.telling.exact, age = false, -1-age
	}
	return m, age, e.heard
}

// Outcome is what became of a take.
type Outcome uint8

// Outcomes.
const (
	Denied  Outcome = iota // nothing was counted
	Passed                 // its units are held
	Unknown                // its units are not held, but may be counted
)

// Answered ends a take.
func (t *Table) Answered(sent Sent, o Outcome) {
	e := sent.entry
	s := t.shardOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	e.onTheWay -= sent.units
	switch o {
	case Passed:
		e.heard = max(e.heard, sent.number)
		t.give(e, sent.units)
	case Unknown:
		t.isInDoubt(e)
	}
	if e.doubt != nil && e.onTheWay == 0 {
		t.queue(e)
	}
	t.tidy(s, e)
}

// isInDoubt makes takes wait for an exact total that is sent from now on. The lock of the entry's shard is held.
func (t *Table) isInDoubt(e *entry) {
	if e.doubt == nil {
		e.doubt = make(chan struct{})
	}
	e.telling.exact, e.changed = false, t.env.Now()
}

// give gives an entry units. The lock of its shard is held.
func (t *Table) give(e *entry, units int64) {
	e.changed = t.env.Now()
	if e.held() == 0 {
		e.since = e.changed
	}
	e.given += units
}

// Add holds units that the server was not asked for.
func (t *Table) Add(c *window.Charge, units int64) {
	t.start()
	s, e := t.lock(c, true)
	defer s.mu.Unlock()
	t.give(e, units)
	e.added += units
	t.queue(e)
}

// GiveBack ends units that are held. sure says that the server has counted them, if it was asked for them; else it may
// have counted more than these.
func (t *Table) GiveBack(c *window.Charge, units int64, sure bool) {
	s, e := t.lock(c, !sure)
	defer s.mu.Unlock()
	if e == nil {
		return
	}
	units = min(units, e.held())
	mine := min(units, e.added)
	e.added -= mine
	if !sure {
		mine = units
	}
	if mine > 0 || !sure { // the server may have heard of them
		t.isInDoubt(e)
	}
	e.given -= mine
	e.back += units - mine
	e.changed = t.env.Now()
	t.queue(e)
}

// Tell has the server told the total of a counter again.
func (t *Table) Tell(c *window.Charge) {
	s, e := t.lock(c, false)
	defer s.mu.Unlock()
	if e != nil {
		t.queue(e)
	}
}

// tidy forgets an entry of which the server has nothing to hear any more. The lock of its shard is held.
func (t *Table) tidy(s *shard, e *entry) {
	n := name{e.charge.Zone, e.charge.Key}
	if e.held() > 0 || e.onTheWay > 0 || e.queued || e.missed || e.doubt != nil || s.entries[n] != e {
		return
	}
	for base := t.base.Load(); e.back > base && !t.base.CompareAndSwap(base, e.back); base = t.base.Load() {
	}
	delete(s.entries, n)
}

// Held returns how many units are held, and of how many counters.
func (t *Table) Held() (units int64, counters int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			units += e.held()
		}
		counters += len(s.entries)
		s.mu.Unlock()
	}
	return units, counters
}
