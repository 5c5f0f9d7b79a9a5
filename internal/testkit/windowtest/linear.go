package windowtest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	linearWorkers = 8
	linearRounds  = 45
	linearOps     = 10 // per worker and round
	linearActive  = 3  // pairs of counters that a round is about
	// maxUnknown bounds the calls without an answer on a pair: each one may have happened at
	// any later time, and each doubles what the check may have to try.
	maxUnknown = 7
)

// Fault makes a store fail. It calls hold, which returns when a call has failed or the round is
// over, and then repairs the store.
type Fault func(hold func())

// Linearizable calls all methods of a Store from many goroutines on stores
// that share their counters, while faults come and go. It holds that the answers are those
// that the Go algorithms give to the same calls, one after the other, in some order in which no
// call comes before one that had ended when it began. A call that ended with ErrUnknown may have
// happened at any time since, or never. A call that ended with another error has not happened.
//
// The clock moves between rounds. Then settled, unless it is nil, returns when no call is left
// under way.
func Linearizable(t *testing.T, clock *Clock, faults []Fault, settled func(), stores ...window.Store) {
	r, name := random(0)
	l := &linear{T: t, Rand: r, clock: clock, stores: stores}
	for _, v := range variants {
		l.add(v.name, v.algo, 0)
		l.add(v.name, v.algo, 0)
		if window.CheckPack(v.algo, 1, 1) == nil {
			l.add("packed "+v.name, v.algo, 1)
		}
	}
	for n := range linearRounds {
		var fault Fault
		if len(faults) > 0 {
			fault = faults[n%len(faults)]
		}
		l.round(fault)
		if settled != nil {
			settled()
		}
		switch step := l.Int64N(3_000); l.IntN(8) {
		case 0:
		case 1:
			clock.Add(-step)
		case 2:
			clock.Add(5 * step)
		default:
			clock.Add(step)
		}
	}
	l.check(name)
	t.Logf("%s: %d calls, %d denied, %d failed, of which %d may have happened", name, l.calls.Load(), l.denied.Load(), l.failed.Load(), l.unknown.Load())
	if l.denied.Load() < 100 || len(faults) > 0 && l.unknown.Load() < 10 {
		t.Errorf("%s: too few denied or without an answer to mean something", name)
	}
}

// linear is a run of Linearizable.
type linear struct {
	*testing.T
	*rand.Rand
	clock  *Clock
	stores []window.Store
	pairs  []*pair
	order  atomic.Int64 // of beginnings and ends of calls

	calls, denied, failed, unknown atomic.Int64
}

// pair is two counters on which requests decide together.
type pair struct {
	name    string
	charges [2]window.Charge

	mu      sync.Mutex // guards what follows
	history []porcupine.Operation
	unknown int
	spent   []int64 // when something was
}

func (l *linear) add(name string, algo window.Algorithm, pack int64) {
	p := &pair{name: fmt.Sprintf("%s, pair %d", name, len(l.pairs))}
	for i := range p.charges {
		p.charges[i] = window.Charge{
			Zone: fmt.Sprintf("%s %d", name, i), Key: p.name, Algorithm: algo, Pack: pack,
			Policies: []window.Policy{per(8+l.Int64N(8), 10_000)},
		}
	}
	if c := &p.charges[1]; len(l.pairs)%2 == 0 && window.CheckPack(algo, 2, pack) == nil {
		c.Policies = append(c.Policies, per(20, 30_000))
	}
	l.pairs = append(l.pairs, p)
}

// round makes all workers call, about few of the counters, with a fault in between.
func (l *linear) round(fault Fault) {
	active := slices.DeleteFunc(slices.Clone(l.pairs), func(p *pair) bool { return p.unknown > maxUnknown-linearWorkers/linearActive })
	l.Shuffle(len(active), func(i, j int) { active[i], active[j] = active[j], active[i] })
	active = active[:min(len(active), linearActive)]
	if len(active) == 0 {
		return
	}
	var workers, faults sync.WaitGroup
	over := make(chan struct{})
	begin := l.calls.Load() + l.Int64N(linearWorkers*linearOps/2)
	for i := range linearWorkers {
		r := rand.New(rand.NewPCG(l.Uint64(), 0))
		workers.Go(func() {
			for range linearOps {
				l.call(r, l.stores[i%len(l.stores)], active[r.IntN(len(active))])
			}
		})
	}
	if fault != nil {
		faults.Go(func() {
			l.await(over, func() bool { return l.calls.Load() >= begin })
			failed := l.failed.Load()
			fault(func() { l.await(over, func() bool { return l.failed.Load() > failed }) })
		})
	}
	workers.Wait()
	close(over)
	faults.Wait()
}

// await returns when something is true, or a round is over.
func (l *linear) await(over <-chan struct{}, ready func() bool) {
	for !ready() {
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// linearCall is a call on a pair. A take is all or nothing; the others are about one charge.
type linearCall struct {
	op        string
	now       int64
	charges   []window.Charge
	counters  []int // of the charges, in the pair
	at, delta int64
}

// linearAnswer is the answer to a call; unknown if it may have happened or not.
type linearAnswer struct {
	unknown   bool
	decisions []window.Decision
}

func (l *linear) newCall(r *rand.Rand, p *pair) linearCall {
	c := linearCall{op: "take", now: l.clock.Now(), counters: []int{r.IntN(2)}}
	switch n := r.IntN(100); {
	case n < 4:
		c.op = "reset"
	case n < 12:
		c.op = "peek"
	case n < 30:
		c.op, c.at, c.delta = "settle", c.now, 1+r.Int64N(2)
		stream, ok := p.charges[0].Algorithm.(window.Stream)
		p.mu.Lock()
		if n := len(p.spent); n > 0 && r.IntN(4) > 0 && !(ok && stream.Keep > 0) {
			c.at, c.delta = p.spent[max(0, n-1-r.IntN(4))], -c.delta
		}
		p.mu.Unlock()
	case n < 60:
		c.counters = []int{0, 1}
		if n%2 == 0 {
			c.counters = []int{1, 0}
		}
	}
	for _, i := range c.counters {
		charge := p.charges[i]
		charge.Cost = 1
		if r.IntN(3) == 0 {
			charge.Cost = r.Int64N(5)
		}
		c.charges = append(c.charges, charge)
	}
	return c
}

// call makes a call, and notes what came of it.
func (l *linear) call(r *rand.Rand, store window.Store, p *pair) {
	c := l.newCall(r, p)
	var a linearAnswer
	var err error
	call := l.order.Add(1)
	switch {
	case c.op == "peek":
		a.decisions, err = store.Peek(l.Context(), c.charges)
	case c.op == "settle":
		err = engine.Settle(l.Context(), store, c.charges[0], c.at, c.delta)
	case c.op == "reset":
		err = store.Reset(l.Context(), c.charges[0])
	case r.IntN(8) == 0:
		result := store.TakeBatch(l.Context(), [][]window.Charge{c.charges})[0]
		a.decisions, err = result.Decisions, result.Err
	default:
		a.decisions, err = store.Take(l.Context(), c.charges)
	}
	end := l.order.Add(1)
	l.calls.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		if c.op == "take" && window.Allowed(a.decisions) {
			p.spent = append(p.spent, c.now)
		} else if c.op == "take" {
			l.denied.Add(1)
		}
	case !errors.Is(err, window.ErrUnavailable):
		l.Errorf("%s: %s: %v, want ErrUnavailable", p.name, c.op, err)
		return
	case errors.Is(err, window.ErrUnknown):
		l.failed.Add(1)
		l.unknown.Add(1)
		if c.op == "peek" {
			return
		}
		p.unknown++
		a.unknown, end = true, math.MaxInt64
	default:
		l.failed.Add(1)
		return
	}
	p.history = append(p.history, porcupine.Operation{Input: c, Call: call, Output: a, Return: end})
}

func (l *linear) check(name string) {
	for _, p := range l.pairs {
		if !porcupine.CheckOperations(linearModel, p.history) {
			l.Errorf("%s: %s: no order of these %d calls has these answers:", name, p.name, len(p.history))
			slices.SortFunc(p.history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
			for _, o := range p.history {
				c, a := o.Input.(linearCall), o.Output.(linearAnswer)
				l.Logf("%d to %d: %s at %d of %v, at %d delta %d, unknown %v: %+v", o.Call, o.Return, c.op, c.now-Start, c.counters, c.at-Start, c.delta, a.unknown, a.decisions)
			}
		}
	}
}

// linearModel is the Go algorithms, on the histories of a pair.
var linearModel = porcupine.Model{
	Init: func() any { return [2]window.History{} },
	Step: func(state, input, output any) (bool, any) {
		s, a := state.([2]window.History), output.(linearAnswer)
		ds, s := input.(linearCall).run(s)
		return a.unknown || slices.Equal(ds, a.decisions), s
	},
	Equal: func(a, b any) bool {
		one, other := a.([2]window.History), b.([2]window.History)
		return slices.Equal(one[0], other[0]) && slices.Equal(one[1], other[1])
	},
	Hash: func(state any) uint64 {
		s := state.([2]window.History)
		return maphash.Bytes(hashSeed, s[0]) ^ 3*maphash.Bytes(hashSeed, s[1])
	},
}

var hashSeed = maphash.MakeSeed()

// run returns the answer to a call, and what it makes of the histories, which stay as they are.
func (c linearCall) run(s [2]window.History) ([]window.Decision, [2]window.History) {
	for _, i := range c.counters {
		s[i] = slices.Clone(s[i])
	}
	first := &s[c.counters[0]]
	switch c.op {
	case "reset":
		*first = nil
		return nil, s
	case "settle":
		charge := c.charges[0]
		if c.delta < 0 {
			*first = first.GiveBack(c.now, &charge, c.at, -c.delta)
		} else {
			*first = first.ChargeMore(c.now, &charge, c.delta)
		}
		return nil, s
	}
	ds := make([]window.Decision, engine.CountPolicies(c.charges))
	for i := range ds {
		ds[i].At = c.now
	}
	own, rest, fits := make([][]window.Decision, len(c.charges)), ds, c.op == "take"
	for i := range c.charges {
		charge := &c.charges[i]
		own[i], rest = rest[:len(charge.Policies)], rest[len(charge.Policies):]
		fits = s[c.counters[i]].Look(c.now, charge, own[i]) && fits
	}
	for i := range c.charges {
		charge, h := &c.charges[i], &s[c.counters[i]]
		if fits && charge.Cost > 0 {
			*h = h.Spend(c.now, charge, own[i])
		} else {
			*h = h.Explain(c.now, charge, own[i], c.op == "take")
		}
	}
	return ds, s
}
