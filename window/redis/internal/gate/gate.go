// Package gate holds back requests in a Cluster.
package gate

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/fingerprint"
)

// Gate holds back requests in a Cluster that might charge one counter only to be denied by
// another. All charges of a request are made at the same time there, and given back if one is
// denied: without a gate, a client that is denied in its own zone would use up a zone that
// all share, from one round trip to the next, by asking often enough at once.
//
// A counter admits no more requests at a time than its last decision left room for, and one if
// that is not known. The others wait for these, for a round trip as a rule, and are then denied
// here, or admitted in turn. A counter whose last denial is not over yet is asked before the
// others of its request; see Enter.
//
// The gate is a hint. It decides on nothing, and forgets: two counters may share a place, and a
// counter takes the place of another on which no request is in flight.
type Gate struct {
	seed   maphash.Seed
	most   int        // waiters
	mu     sync.Mutex // guards the rest; held for a few instructions per charge
	places [1 << 13]CounterState
	queued int // waiters at all places
}

// CounterState is what the gate knows of a counter under certain policies and options.
type CounterState struct {
	hash     uint64
	inFlight int64         // units in flight
	left     int64         // what the last decision left; notKnown
	at       int64         // Decision.At of that
	until    time.Duration // when the last denial is over
	waiters  []chan struct{}
}

const (
	notKnown = -1
	// mostCost is what a larger cost counts as, so that no sum overflows.
	mostCost = 1 << 40
)

// New returns a gate at which a number of requests wait at most.
func New(most int) *Gate { return &Gate{seed: maphash.MakeSeed(), most: most} }

// Hashes appends the hash of each charge, without its cost.
func (g *Gate) Hashes(dst []uint64, charges []window.Charge) []uint64 {
	var buf [512]byte
	for i := range charges {
		dst = append(dst, maphash.Bytes(g.seed, fingerprint.Append(buf[:0], &charges[i], 0)))
	}
	return dst
}

func (g *Gate) place(hash uint64) *CounterState { return &g.places[hash%uint64(len(g.places))] }

// Enter lets a request in, or returns a channel that is closed when it may try again, with the
// place to wait at. It lets in all with force. busy means that too many wait.
//
// suspect is the charge whose counter denied last, if that denial is not over, or -1.
func (g *Gate) Enter(now time.Duration, charges []window.Charge, hashes []uint64, force bool) (suspect int, at *CounterState, wait chan struct{}, busy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	suspect = -1
	for i, hash := range hashes {
		p := g.place(hash)
		if p.hash != hash && p.inFlight == 0 && len(p.waiters) == 0 {
			*p = CounterState{hash: hash, left: notKnown}
		}
		if !force && !p.admits(charges[i].Cost) {
			if g.queued == g.most {
				return -1, nil, nil, true
			}
			g.queued++
			wait = make(chan struct{})
			p.waiters = append(p.waiters, wait)
			return -1, p, wait, false
		}
		if p.hash == hash && now < p.until && (suspect < 0 || p.until > g.place(hashes[suspect]).until) {
			suspect = i
		}
	}
	for i, hash := range hashes {
		g.place(hash).inFlight += min(charges[i].Cost, mostCost)
	}
	return suspect, nil, nil, false
}

func (p *CounterState) admits(cost int64) bool {
	return cost == 0 || p.inFlight == 0 || p.inFlight+min(cost, mostCost) <= p.left
}

// Leave ends a request that was let in, and notes its decisions, if there are any.
func (g *Gate) Leave(now time.Duration, charges []window.Charge, hashes []uint64, ds []window.Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, hash := range hashes {
		p := g.place(hash)
		p.inFlight -= min(charges[i].Cost, mostCost)
		denied := false
		if ds != nil {
			own := ds[:len(charges[i].Policies)]
			ds = ds[len(own):]
			if p.hash == hash {
				p.note(now, own)
			}
			denied = !window.Allowed(own)
		}
		g.wake(p, denied)
	}
}

// note keeps what was decided. Decisions may be heard of in another order than they were made
// in; where nothing else is in flight, the clock of the server may have stepped back.
func (p *CounterState) note(now time.Duration, ds []window.Decision) {
	left, wait := slices.MinFunc(ds, func(a, b window.Decision) int { return cmp.Compare(a.Remaining, b.Remaining) }).Remaining, time.Duration(0)
	for i := range ds {
		wait = max(wait, ds[i].RetryAfter)
	}
	switch at := ds[0].At; {
	case at > p.at, p.inFlight == 0, p.left == notKnown:
		p.left, p.at = left, at
		p.until = now + min(wait, 24*time.Hour) // which Never is not
	case at == p.at:
		p.left = min(p.left, left)
	}
}

// wake lets waiters try again while there is room, and all of them after a denial.
func (g *Gate) wake(p *CounterState, all bool) {
	n := p.left - p.inFlight
	if p.inFlight == 0 {
		n = max(n, 1)
	}
	if all || n > int64(len(p.waiters)) {
		n = int64(len(p.waiters))
	}
	for ; n > 0; n-- {
		close(p.waiters[0])
		p.waiters[0] = nil
		p.waiters = p.waiters[1:]
		g.queued--
	}
	if len(p.waiters) == 0 {
		p.waiters = nil
	}
}

// Pass lets another waiter try that has not used its turn, or goes.
func (g *Gate) Pass(p *CounterState, wait chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range p.waiters {
		if other == wait {
			p.waiters = append(p.waiters[:i:i], p.waiters[i+1:]...)
			g.queued--
			return
		}
	}
	g.wake(p, false)
}

// Load returns how many units are in flight, and how many requests wait.
func (g *Gate) Load() (inFlight int64, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.places {
		inFlight += g.places[i].inFlight
	}
	return inFlight, g.queued
}
