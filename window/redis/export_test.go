package redis

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TakeEach takes requests in one round trip, each in a run of the script of its
// own, at a time of its own.
func (s *Store) TakeEach(ctx context.Context, requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	calls := make([]*call, len(requests))
	for i := range requests {
		calls[i] = s.newScriptCall(s.namings, "take", requests[i:i+1])
		calls[i].first = i
	}
	s.decideTogether(ctx, calls, results)
	return results
}

// Format is the number of the format of keys.
const Format = format

// Limits of what travels together, for tests.
const (
	Flights     = flights
	Crowd       = crowd
	Late        = late
	QueueLength = queueLength
	BatchWeight = batchWeight
)

// Flying returns how many batches are under way to the only server.
func Flying(s *Store) int {
	c := s.commit("")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flying
}

// Waiting returns how many requests wait for the only server.
func Waiting(s *Store) int {
	c := s.commit("")
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// Near has the servers seem near, also on a busy machine, until the next one answers.
func Near(s *Store) { s.trip.nanoseconds.Store(int64(time.Millisecond)) }

// NeverLate has the flights that are under way to the only server never be late.
func NeverLate(s *Store) {
	c := s.commit("")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.aloft {
		f.since = math.MaxInt64
	}
}

// AskAlways has the store ask the server about every request, and returns it.
func AskAlways(s *Store) *Store {
	s.denials.longest = 0
	return s
}

// TellTime has the store remember denials by a clock of its own: that of the process, while
// Options.Now is that of the server.
func TellTime(s *Store, now func() time.Duration) { s.denials.now = now }

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

// EndLeases ends the leases whose time is over, and returns when they are booked.
func EndLeases(s *Store) {
	s.leases.each(func(e *lessee) {
		if e.lease != nil && !e.lease.lives(s.leases.now()) {
			s.leases.end(e)
		}
	})
	s.leases.ends.Wait()
}

// Leased returns how many units are left in leases.
func Leased(s *Store) (units int64) {
	s.leases.each(func(e *lessee) {
		if e.lease != nil {
			units += e.lease.left
		}
	})
	return units
}

// Booked waits until the leases that have ended are booked.
func Booked(s *Store) { s.leases.ends.Wait() }

// Debts returns on how many counters leases are not booked that have ended.
func Debts(s *Store) int64 { return s.leases.debts.n.Load() }

// Suspendable returns a function that has the clock on the wall go on for a while in which the
// steady one has stood. The store must not have been used.
func Suspendable(s *Store) (suspend func(time.Duration)) {
	now, ahead := s.leases.now, new(atomic.Int64)
	s.leases.now = func() clocks {
		c := now()
		c.wall += time.Duration(ahead.Load())
		return c
	}
	return func(d time.Duration) { ahead.Add(int64(d)) }
}

// LesseesPerShard bounds the counters that leases know, a shard.
const LesseesPerShard = lesseesPerShard

// Lessee makes leases know a counter.
func Lessee(s *Store, c window.Charge) { s.leases.lessee(&c) }

// Lessees returns how many counters leases know.
func Lessees(s *Store) (n int) {
	s.leases.each(func(*lessee) { n++ })
	return n
}

// Naming appends names of counters.
type Naming struct{ naming }

// NewNaming returns how a store of these options names counters.
func NewNaming(o Options) *Naming { return &Naming{newNamings(o)[0]} }

// AppendKey appends the name of the key that holds a charge's counter.
func (n *Naming) AppendKey(dst []byte, c *window.Charge) []byte { return n.appendKey(dst, c) }

// Answer reads the reply to a call under a number of names.
func Answer(requests [][]window.Charge, reply []int64, names int, native bool) []window.Result {
	c := call{op: "take", requests: requests, reply: reply, namings: make([]naming, names), native: native}
	results := make([]window.Result, len(requests))
	c.answer(results)
	return results
}

// CheckReplies reports whether replies that come in parts are let through.
func CheckReplies(parts ...[]byte) bool { return new(replies).checkAll(parts) }

// CheckSentinel reports whether those of a Sentinel are, after it was sent something.
func CheckSentinel(sent string, parts ...[]byte) bool {
	r := replies{sentinel: new(sentinel)}
	r.sentinel.sent([]byte(sent))
	return r.checkAll(parts)
}

func (r *replies) checkAll(parts [][]byte) bool {
	for _, part := range parts {
		if r.check(part) != nil {
			return false
		}
	}
	return true
}

// Gate returns how many units are in flight through the gate, and how many requests wait.
func Gate(s *Store) (flying int64, waiting int) {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	for i := range s.gate.places {
		flying += s.gate.places[i].flying
	}
	return flying, s.gate.queued
}

// Doubt has the store ping the kind of a charge, as if it had failed.
func Doubt(s *Store, c window.Charge) { s.doubt([]window.Charge{c}) }
