package redis

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// gate holds back requests in a Cluster that might charge one counter only to be denied by
// another. All charges of a request are made at the same time there, and given back if one is
// denied: without a gate, a client that is denied in its own zone would use up a zone that
// all share, from one round trip to the next, by asking often enough at once.
//
// A counter admits no more requests at a time than its last decision left room for, and one if
// that is not known. The others wait for these, for a round trip as a rule, and are then denied
// here, or admitted in turn. A counter whose last denial is not over yet is asked before the
// others of its request; see Store.takeSuspect.
//
// The gate is a hint. It decides on nothing, and forgets: two counters may share a place, and a
// counter takes the place of another on which no request is in flight.
type gate struct {
	seed   maphash.Seed
	mu     sync.Mutex // guards the rest; held for a few instructions per charge
	places [1 << 13]place
	queued int // waiters at all places
}

// place is what the gate knows of a counter under certain policies and options.
type place struct {
	hash    uint64
	flying  int64         // units in flight
	left    int64         // what the last decision left; notKnown
	at      int64         // Decision.At of that
	until   time.Duration // when the last denial is over
	waiters []chan struct{}
}

const (
	notKnown = -1
	// mostCost is what a larger cost counts as, so that no sum overflows.
	mostCost = 1 << 40
)

func newGate() *gate { return &gate{seed: maphash.MakeSeed()} }

// hashes appends the hash of each charge, without its cost.
func (g *gate) hashes(dst []uint64, charges []window.Charge) []uint64 {
	var buf [512]byte
	for i := range charges {
		dst = append(dst, maphash.Bytes(g.seed, appendCharge(buf[:0], &charges[i], 0)))
	}
	return dst
}

func (g *gate) place(hash uint64) *place { return &g.places[hash%uint64(len(g.places))] }

// enter lets a request in, or returns a channel that is closed when it may try again, with the
// place to wait at. It lets in all with force. busy means that too many wait.
//
// suspect is the charge whose counter denied last, if that denial is not over, or -1.
func (g *gate) enter(now time.Duration, charges []window.Charge, hashes []uint64, force bool) (suspect int, at *place, wait chan struct{}, busy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	suspect = -1
	for i, hash := range hashes {
		p := g.place(hash)
		if p.hash != hash && p.flying == 0 && len(p.waiters) == 0 {
			*p = place{hash: hash, left: notKnown}
		}
		if !force && !p.admits(charges[i].Cost) {
			if g.queued == queueLength {
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
		g.place(hash).flying += min(charges[i].Cost, mostCost)
	}
	return suspect, nil, nil, false
}

func (p *place) admits(cost int64) bool {
	return cost == 0 || p.flying == 0 || p.flying+min(cost, mostCost) <= p.left
}

// leave ends a request that was let in, and notes its decisions, if there are any.
func (g *gate) leave(now time.Duration, charges []window.Charge, hashes []uint64, ds []window.Decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, hash := range hashes {
		p := g.place(hash)
		p.flying -= min(charges[i].Cost, mostCost)
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
func (p *place) note(now time.Duration, ds []window.Decision) {
	left, wait := room(ds), time.Duration(0)
	for i := range ds {
		wait = max(wait, ds[i].RetryAfter)
	}
	switch at := ds[0].At; {
	case at > p.at, p.flying == 0, p.left == notKnown:
		p.left, p.at = left, at
		p.until = now + min(wait, 24*time.Hour) // which Never is not
	case at == p.at:
		p.left = min(p.left, left)
	}
}

// wake lets waiters try again while there is room, and all of them after a denial.
func (g *gate) wake(p *place, all bool) {
	n := p.left - p.flying
	if p.flying == 0 {
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

// pass lets another waiter try that has not used its turn, or goes.
func (g *gate) pass(p *place, wait chan struct{}) {
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

// takeInTurn is Take for a request on several counters in a Cluster.
func (s *Store) takeInTurn(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	var (
		buf     [8]uint64
		hashes  = s.gate.hashes(buf[:0], charges)
		timer   *time.Timer // runs once the request has waited
		force   bool
		waited  *place
		turn    chan struct{}
		suspect int
	)
	for {
		asked := s.denials.ask()
		if ds := s.denials.answer(asked, charges, room); ds != nil {
			if waited != nil {
				s.gate.pass(waited, turn)
			}
			return ds, nil
		}
		first, at, wait, busy := s.gate.enter(asked.at, charges, hashes, force)
		if waited != nil && at != waited {
			s.gate.pass(waited, turn)
		}
		if busy {
			return nil, fmt.Errorf("%s: %w: %w", s.name, window.ErrUnavailable, window.ErrBusy)
		}
		if wait == nil {
			suspect = first
			break
		}
		waited, turn = at, wait
		if timer == nil {
			timer = time.NewTimer(min(s.timeout/2, max(0, s.timeout-s.trip.get()*9/8)))
			defer timer.Stop()
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.timeout) // of the wait and the call
			defer cancel()
		}
		select {
		case <-wait:
		case <-timer.C:
			force = true
		case <-ctx.Done():
			s.gate.pass(at, wait)
			return nil, s.failUncharged(ctx, ctx.Err())
		}
	}
	asked := s.denials.ask()
	var r window.Result
	if suspect >= 0 {
		// A request that left just now may have been denied.
		if ds := s.denials.answer(asked, charges, room); ds != nil {
			s.gate.leave(asked.at, charges, hashes, nil)
			return ds, nil
		}
		r = s.takeSuspect(ctx, charges, suspect)
	} else {
		r = s.take(ctx, charges, room)
	}
	s.denials.remember(asked, charges, r.Decisions)
	s.gate.leave(asked.at, charges, hashes, r.Decisions)
	if r.Err != nil {
		s.doubt(charges)
	}
	return r.Decisions, r.Err
}
