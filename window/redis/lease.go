package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// leases hand out units that were taken ahead, without asking the server.
//
// A lease is booked as spent when it is taken. It ends when its time is over or its units
// are used up. At that moment its used units are booked again and the others go back, in one
// step.
//
// Every unit is thus booked from before its use until a full window after it, so that leases
// never exceed the limit. This requires that a lease ends before its first booking leaves the
// window; see lifetime. What cannot be booked in time is a debt, see debts.
//
// The size of leases follows the rate. A counter that is asked for twice within a lifetime
// gets a lease. The next lease is twice as large if all units were used in time, and as large
// as what was used if not. No lease takes more than half of what the limit has left.
type leases struct {
	store  *Store
	now    func() clocks
	seed   maphash.Seed
	shards [64]leaseShard
	ends   sync.WaitGroup // bookings under way
	debts  debts
}

// leaseShard holds the counters whose names have the same hash.
type leaseShard struct {
	mu      sync.RWMutex // guards all but what the lessees hold
	lessees map[string]*lessee
	closed  bool
	_       [64]byte // keeps the locks of two shards apart
}

// lesseesPerShard bounds the memory: about 20 MB in all.
const lesseesPerShard = 1 << 10

// lessee is a counter, with certain policies and options, that may have a lease.
type lessee struct {
	mu    sync.Mutex    // guards all; never held while the server is asked
	seen  time.Duration // when it was last asked for
	size  int64         // of the last lease
	room  int64         // what the limit had left when the server was last asked
	pause time.Duration // no lease before
	lease *lease        // nil: none
	fetch *fetch        // nil: none
	gone  bool          // another lessee may have taken its place, or the store is closed
}

// lease is what is handed out. The lock of its lessee, or of the debts, guards left and
// last; all else stays as it is.
type lease struct {
	charge    window.Charge
	decisions []window.Decision // when it was taken
	left      int64
	taken     clocks        // before it was
	last      time.Duration // from then until units were handed out
	life      time.Duration // how long it may hand out units
	timer     *time.Timer
}

// fetch is a lease that is being taken. Those who need it wait for done.
type fetch struct {
	done   chan struct{}
	err    error
	charge *window.Charge // of the request that takes it
	reset  bool           // its counter was reset before done: nobody knows whether the lease is booked
}

func newLeases(s *Store) *leases {
	l := &leases{store: s, now: newClocks(s), seed: maphash.MakeSeed()}
	l.debts.init(l)
	return l
}

// lifetime returns how long a lease of the charge lives; 0 means that it gets none.
// Its end has to reach the server before the first booking leaves the window. With
// two names on two nodes of a Cluster, the bookings have two times.
func (s *Store) lifetime(c *window.Charge) time.Duration {
	if s.cluster && len(s.namings) > 1 {
		return 0
	}
	shortest := shortest(c)
	return min(c.Lease.TTL, shortest/2, shortest-s.timeout)
}

func shortest(c *window.Charge) time.Duration {
	w := c.Policies[0].Window
	for _, p := range c.Policies {
		w = min(w, p.Window)
	}
	return w
}

// take decides on a charge of e with the units of a lease. Without decisions or an
// error, the server has to be asked; until end, if time has gone by already.
func (l *leases) take(ctx context.Context, e *lessee, c *window.Charge, room []window.Decision) (_ []window.Decision, end time.Time, _ error) {
	life := l.store.lifetime(c)
	if life < time.Millisecond || c.Cost == 0 || c.Cost > c.Lease.Units/2 {
		return nil, end, nil // a lease is worth its trouble to two such requests
	}
	for {
		e.mu.Lock()
		now := l.now()
		switch f, own := e.fetch, e.lease; {
		case e.gone:
			e.mu.Unlock()
			return nil, end, nil
		case own != nil && own.lives(now) && own.left >= c.Cost:
			left := own.spend(c.Cost, now)
			e.seen = now.steady
			e.mu.Unlock()
			return own.decide(left, now, room), end, nil
		case f != nil:
			e.mu.Unlock()
			if err := l.wait(ctx, f, &end); err != nil {
				return nil, end, err
			}
			continue
		}
		if e.lease != nil {
			l.end(e)
		}
		if l.debts.has(c) {
			e.mu.Unlock()
			if err := l.repay(ctx, &end, *c); err != nil {
				return nil, end, err
			}
			continue
		}
		size := e.grow(c, now.steady, life)
		if size < 2*c.Cost {
			e.mu.Unlock()
			return nil, end, nil
		}
		f := &fetch{done: make(chan struct{}), charge: c}
		e.fetch = f
		e.mu.Unlock()
		if end.IsZero() {
			end = time.Now().Add(l.store.timeout)
		}
		ds, err := l.fetch(ctx, e, f, c, size, life, now, end)
		return ds, end, err
	}
}

// lives reports whether units may be handed out.
func (own *lease) lives(now clocks) bool { return now.since(own.taken) < own.life }

// spend hands out units, and returns how many are left.
func (own *lease) spend(cost int64, now clocks) int64 {
	own.left -= cost
	own.last = now.since(own.taken)
	return own.left
}

// decide returns the decisions on a request after which the lease has left units. It reuses
// the array of room if that is large enough. No lock is needed.
func (own *lease) decide(left int64, now clocks, room []window.Decision) []window.Decision {
	room = append(room[:0], own.decisions...)
	for i := range room {
		room[i].Remaining += left
		room[i].ResetAfter = own.charge.Policies[i].Window + own.life - now.since(own.taken)
	}
	return room
}

// grow returns the size of the next lease, which is below two of the charge's cost
// if there should be none.
func (e *lessee) grow(c *window.Charge, now, life time.Duration) int64 {
	if e.size == 0 || now-e.seen > life || now < e.seen {
		e.size = c.Cost
	} else {
		e.size = min(c.Lease.Units, 2*max(e.size, c.Cost))
	}
	e.seen = now
	if now < e.pause {
		return 0
	}
	return min(e.size, e.room/2)
}

// wait waits for a lease that another request takes. The first wait needs no timer: the
// other has waited for longer, and no longer than the timeout. It sets the end of those
// that follow.
func (l *leases) wait(ctx context.Context, f *fetch, end *time.Time) error {
	if end.IsZero() {
		*end = time.Now().Add(l.store.timeout)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, *end)
		defer cancel()
	}
	select {
	case <-f.done:
		return engine.NotSent(f.err)
	case <-ctx.Done():
		return l.store.failUncharged(ctx, ctx.Err()) // what is charged is the lease
	}
}

// fetch takes a lease until end, and spends the charge's cost of it. The caller may go,
// but the lease is taken all the same: what is booked has to end.
func (l *leases) fetch(ctx context.Context, e *lessee, f *fetch, c *window.Charge, size int64, life time.Duration, sent clocks, end time.Time) ([]window.Decision, error) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	whole := *c
	whole.Key, whole.Policies = strings.Clone(c.Key), slices.Clone(c.Policies) // they outlive the request
	whole.Cost = size
	r := l.store.take(ctx, []window.Charge{whole}, nil)
	if errors.Is(r.Err, window.ErrUnknown) {
		l.store.report(fmt.Errorf("zone %q: a lease of %d units may stay booked, and nobody has it: %w", c.Zone, size, r.Err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(f.done)
	e.fetch = nil
	now := l.now()
	switch {
	case r.Err != nil:
		f.err = r.Err
		return nil, r.Err
	case !window.Allowed(r.Decisions):
		e.room, e.pause = room(r.Decisions), now.steady+life
		return nil, nil
	}
	e.room = room(r.Decisions)
	own := &lease{charge: whole, decisions: r.Decisions, left: size, taken: sent, life: life}
	e.lease = own
	own.timer = time.AfterFunc(life-now.since(sent), func() { l.expire(e, own) })
	var ds []window.Decision
	if own.lives(now) { // else this process may have been stopped, and nobody gets anything
		ds = own.decide(own.spend(c.Cost, now), now, nil)
	}
	if ds == nil || f.reset || e.gone {
		l.end(e)
	}
	return ds, nil
}

// room is what the tightest limit has left.
func room(decisions []window.Decision) int64 {
	least := decisions[0].Remaining
	for i := range decisions {
		least = min(least, decisions[i].Remaining)
	}
	return least
}

// answered notes what the server said to a request without lease.
func (e *lessee) answered(decisions []window.Decision) {
	if len(decisions) > 0 {
		e.mu.Lock()
		e.room = room(decisions)
		e.mu.Unlock()
	}
}

// each calls visit with every lessee, and its lock held.
func (l *leases) each(visit func(*lessee)) {
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		all := make([]*lessee, 0, len(shard.lessees))
		for _, e := range shard.lessees {
			all = append(all, e)
		}
		shard.mu.Unlock()
		for _, e := range all {
			e.mu.Lock()
			visit(e)
			e.mu.Unlock()
		}
	}
}

// lessee returns that of a charge, or nil if there are too many.
func (l *leases) lessee(c *window.Charge) *lessee {
	var buf [512]byte
	key := appendCharge(buf[:0], c, 0)
	return l.shard(key).findOrAdd(key)
}

func (l *leases) shard(key []byte) *leaseShard {
	return &l.shards[maphash.Bytes(l.seed, key)%uint64(len(l.shards))]
}

func (s *leaseShard) find(key []byte) *lessee {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lessees[string(key)]
}

// findOrAdd returns nil if there are too many to add one.
func (s *leaseShard) findOrAdd(key []byte) *lessee {
	if e := s.find(key); e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.lessees[string(key)]; e != nil {
		return e
	}
	if s.closed || len(s.lessees) >= lesseesPerShard && !s.evict() {
		return nil
	}
	if s.lessees == nil {
		s.lessees = make(map[string]*lessee)
	}
	e := new(lessee)
	s.lessees[string(key)] = e
	return e
}

// evict makes room for another lessee, in place of one without a lease.
func (s *leaseShard) evict() bool {
	looked := 0
	for key, e := range s.lessees {
		if e.mu.TryLock() {
			e.gone = e.lease == nil && e.fetch == nil
			e.mu.Unlock()
			if e.gone {
				delete(s.lessees, key)
				return true
			}
		}
		if looked++; looked == 8 {
			break
		}
	}
	return false
}
