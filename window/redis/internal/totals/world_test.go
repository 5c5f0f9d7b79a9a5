package totals

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// patience is how long a process waits for an answer, in ms.
const patience = 100

// world is one schedule. After each step, of a counter that had no fault of those below:
//
//   - processes hold the limit at most;
//   - none holds more than the server counts of it.
//
// A fault makes units of a counter unknown to the server: it has lost or gone back to a state, a process was silent for its
// lease, or units were admitted without the server. Then processes hold at most as much above the limit
// as has become unknown.
type world struct {
	*rand.Rand
	t         *testing.T
	name      string
	now, step int64 // ms; the server's clock is ahead by step
	server    server
	before    server // a snapshot
	hangs     int64  // until when the server runs nothing
	away      bool   // no process reaches the server
	faults    faults
	counters  []*shared
	processes []*process
	packets   []*packet
	made      int // processes
	tally     tally
	traced    bool
	clock     bool       // of the server was set back
	quiet     bool       // no caller goes
	restored  bool       // the server has gone back to an older state, or forgotten which messages are late
	record    func(call) // for TestModelIsScript; nil: none
	forever   bool       // the server forgets no key
}

// faults are those of a schedule.
type faults struct{ lost, late, doubled, local, state, clock, silence, kill bool }

// shared is a counter of all processes.
type shared struct {
	charge  window.Charge
	limit   int64
	lease   int64
	excused int64 // units that have become unknown
	tainted bool  // by a fault
}

// process is one that takes units. Its teller is a coroutine.
type process struct {
	*world
	name     string
	table    *Table
	dead     bool
	stopped  bool
	held     []int64 // by counter
	unknown  []int64
	requests []*request

	resume                          func() (struct{}, bool)
	end                             func()
	entries                         []*entry
	telling                         bool
	call                            int // which is told
	replies                         []int64
	busy                            bool
	away                            bool
	deadline, beat, again, paceEnds int64
}

type request struct {
	counter  int
	cost     int64
	sent     Sent
	deadline int64
	done     bool
}

// packet is on its way to the server, or to a process.
type packet struct {
	at  int64
	to  *process // nil: the server
	run func()
}

// call is what a server has run.
type call struct {
	now                          int64
	key, process                 string
	m                            Message
	take                         bool
	cost, limit, lease           int64 // of a take
	age, heard, reply, remaining int64
	allowed                      bool
	after                        map[string]field
	expires                      int64
	loses                        bool // no call: the server has another state
	state                        server
}

func newWorld(t *testing.T, seed uint64, n int) *world {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	w := &world{t: t, Rand: r, name: fmt.Sprintf("-totals.seed=%d -totals.only=%d", seed, n), server: server{}, traced: *only >= 0}
	w.now, w.step = []int64{1_000, 3_600_000}[w.IntN(2)], 1_000_000
	w.before = w.server.clone()
	some := func() bool { return w.IntN(3) == 0 }
	w.faults = faults{some(), some(), some(), some(), some(), some(), some(), some()}
	w.name += fmt.Sprintf(" %+v", w.faults)
	for i := range 1 + w.IntN(2) {
		lease := []time.Duration{2 * time.Second, 3 * time.Second, 15 * time.Second}[w.IntN(3)]
		limit := 1 + w.Int64N(5)
		w.counters = append(w.counters, &shared{limit: limit, lease: lease.Milliseconds(), charge: window.Charge{
			Zone: "z", Key: fmt.Sprint("k", i), Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: limit, Window: lease}},
		}})
	}
	for range 1 + w.IntN(3) {
		w.start()
	}
	return w
}

func (w *world) trace(format string, args ...any) {
	if w.traced {
		w.t.Logf("%d: %s", w.now, fmt.Sprintf(format, args...))
	}
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("%s, at %d: %s", w.name, w.now, fmt.Sprintf(format, args...))
	panic(w)
}

// start starts a process.
func (w *world) start() {
	p := &process{world: w, name: fmt.Sprint("p", w.made), held: make([]int64, len(w.counters)), unknown: make([]int64, len(w.counters))}
	w.made++
	p.beat, p.again = w.now+w.Int64N(Beat.Milliseconds()), math.MaxInt64
	var wait func(struct{}) bool
	p.table = New(Env{
		Context:   context.Background(),
		Now:       func() time.Duration { return time.Duration(w.now) * time.Millisecond },
		Tell:      func(_ context.Context, charges []window.Charge) []int64 { return p.tell(charges, wait) },
		Reclaimed: func(_ string, units int64) { w.tally.Reclaimed += int(units) },
	})
	p.table.teller.once.Do(func() {}) // the coroutine tells
	p.resume, p.end = iter.Pull(func(yield func(struct{}) bool) {
		for wait = yield; yield(struct{}{}); {
			p.away = p.table.round(p.entries)
			p.busy = false
			if !p.away && len(p.entries) > 0 {
				p.paceEnds = w.now + pace.Milliseconds()
			}
		}
	})
	p.resume()
	w.processes = append(w.processes, p)
}

// tell sends totals, and waits for the replies.
func (p *process) tell(charges []window.Charge, wait func(struct{}) bool) []int64 {
	w, c := p.world, make([]call, len(charges))
	order := make([]int, len(charges))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(charges[i].Key, charges[j].Key) })
	for _, i := range order {
		c[i] = call{key: charges[i].Key, process: p.name, lease: charges[i].Policies[0].Window.Milliseconds()}
		c[i].m, c[i].age, c[i].heard = p.table.Total(&charges[i])
	}
	p.replies = slices.Repeat([]int64{unsent}, len(charges))
	p.call++
	number := p.call
	p.telling, p.deadline = true, w.now+patience
	w.trace("%s tells %+v", p.name, c)
	w.send(p, func() func() {
		replies := make([]int64, len(c))
		for _, i := range order {
			replies[i] = w.ran(c[i])
		}
		return func() {
			if p.telling && p.call == number {
				p.replies = replies
				p.telling = false
				p.resume()
			}
		}
	})
	wait(struct{}{})
	p.telling = false
	w.trace("%s was answered %v", p.name, p.replies)
	return p.replies
}

// ran runs a call on the server.
func (w *world) ran(c call) (reply int64) {
	c.now = w.now + w.step
	w.expire(c.now)
	if c.take {
		before := w.server.read(c.now, c.key, c.process, c.m)
		c.allowed, c.remaining = w.server.take(c.now, c.key, c.process, c.m, c.cost, c.limit, c.lease)
		if before.known && c.m.Number < before.exact {
			w.tally.Refused++
		}
	} else {
		w.tally.Totals++
		c.reply = w.server.total(c.now, c.key, c.process, c.m, c.age, c.heard, c.lease)
		if c.reply == Stale {
			w.tally.Stale++
		} else if c.reply%2 == 1 {
			w.tally.Lost++
		}
	}
	if w.record != nil {
		if k := w.server[c.key]; k != nil {
			c.after, c.expires = w.server.clone()[c.key].fields, k.expires
		}
		w.record(c)
	}
	w.trace("server: %+v", c)
	if c.take && c.allowed {
		return 1
	}
	return c.reply
}

// send sends a message of a process. run runs it on the server, and returns what its answer does.
func (w *world) send(p *process, run func() func()) {
	lost := func() bool { return w.faults.lost && w.IntN(8) == 0 }
	if w.away {
		return
	}
	if !lost() {
		w.packets = append(w.packets, &packet{w.now + w.delay(), nil, func() {
			if answer := run(); !lost() {
				w.packets = append(w.packets, &packet{w.now + w.delay(), p, answer})
			}
		}})
	}
	if w.faults.doubled && w.IntN(8) == 0 {
		w.packets = append(w.packets, &packet{w.now + w.delay(), nil, func() { run() }})
	}
}

func (w *world) delay() int64 {
	switch {
	case !w.faults.late || w.IntN(4) > 0:
		return w.Int64N(3)
	case w.IntN(3) > 0:
		return w.Int64N(60)
	}
	return w.Int64N(4_000)
}

// take takes units for a request, unless it would have to wait.
func (p *process) take(counter int, cost int64) *request {
	w, k := p.world, p.counters[counter]
	c := k.charge
	c.Cost = cost
	if p.table.Doubt(&c) != nil {
		return nil
	}
	m, sent := p.table.Take(0, &c)
	r := &request{counter: counter, cost: cost, sent: sent, deadline: w.now + patience}
	if w.away { // as a connection that cannot be made
		r.done = true
		p.table.Answered(sent, Denied)
		p.instead(r)
		return r
	}
	p.requests = append(p.requests, r)
	w.trace("%s takes %d of %d: %+v", p.name, cost, counter, m)
	w.send(p, func() func() {
		allowed := w.ran(call{key: c.Key, process: p.name, m: m, take: true, cost: cost, limit: k.limit, lease: k.lease}) == 1
		return func() { p.answered(r, allowed) }
	})
	return r
}

func (p *process) answered(r *request, allowed bool) {
	if r.done {
		return
	}
	r.done = true
	if !allowed {
		p.tally.Denied++
		p.table.Answered(r.sent, Denied)
		return
	}
	p.tally.Passed++
	p.table.Answered(r.sent, Passed)
	p.held[r.counter] += r.cost
	p.trace("%s has %d more of %d: %d", p.name, r.cost, r.counter, p.held[r.counter])
	if !p.quiet && p.IntN(16) == 0 { // the caller has gone
		p.free(r.counter, r.cost, p.IntN(2) == 0)
	}
}

func (p *process) timeOut(r *request) {
	r.done = true
	p.tally.Unknown++
	p.trace("%s knows nothing of %d", p.name, r.counter)
	p.table.Answered(r.sent, Unknown)
	p.instead(r)
}

// instead admits units without the server.
func (p *process) instead(r *request) {
	if !p.faults.local || p.IntN(2) == 0 {
		return
	}
	k := p.counters[r.counter]
	p.tally.Added++
	p.table.Add(&k.charge, r.cost)
	p.held[r.counter] += r.cost
	k.tainted = true
	hidden := p.server.held(p.now+p.step, k.charge.Key, p.name) - (p.held[r.counter] - r.cost) // by units that it does not hold
	k.excused += min(r.cost, max(0, hidden))
	p.trace("%s adds %d of %d: %d", p.name, r.cost, r.counter, p.held[r.counter])
}

func (p *process) free(counter int, units int64, sure bool) {
	p.tally.Freed++
	p.held[counter] -= units
	p.table.GiveBack(&p.counters[counter].charge, units, sure)
	p.trace("%s frees %d of %d: %d", p.name, units, counter, p.held[counter])
}

// next returns when the process does something by itself.
func (p *process) next() int64 {
	if p.dead || p.stopped {
		return math.MaxInt64
	}
	at := int64(math.MaxInt64)
	p.requests = slices.DeleteFunc(p.requests, func(r *request) bool { return r.done })
	for _, r := range p.requests {
		at = min(at, r.deadline)
	}
	if p.busy {
		return min(at, p.deadline)
	}
	teller := p.beat
	if !p.away {
		teller = min(teller, p.again)
		if len(p.table.teller.wake) > 0 {
			teller = p.now
		}
	}
	return min(at, max(teller, p.paceEnds))
}

// act does what is due.
func (p *process) act() {
	for _, r := range p.requests {
		if r.deadline <= p.now && !r.done {
			p.timeOut(r)
			return
		}
	}
	if p.busy {
		p.resume()
		return
	}
	var entries []*entry
	if p.beat <= p.now && (len(p.table.teller.wake) == 0 || p.away || p.IntN(2) == 0) {
		for p.beat <= p.now {
			p.beat += Beat.Milliseconds()
		}
		entries = p.table.due(false)
	} else {
		select {
		case <-p.table.teller.wake:
		default:
		}
		p.again = math.MaxInt64
		entries = p.table.ready(func(d time.Duration) bool { p.again = p.now + d.Milliseconds(); return true })
	}
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.charge.Key, b.charge.Key) })
	p.entries, p.busy = entries, true
	p.resume()
}

// expire forgets keys as Redis does.
func (w *world) expire(now int64) {
	for key, k := range w.server {
		if k.expires <= now && !w.forever {
			for name, f := range k.fields {
				if silent := min(f.at, now)+f.lease <= now; !silent && f.given > f.back && !w.clock {
					w.failf("%s is forgotten, and %s was not silent for its lease", key, name)
				} else if !silent {
					w.restored = true
				}
			}
			for _, c := range w.counters { // its expiry was set while the clock was back
				c.tainted = c.tainted || w.clock && c.charge.Key == key
			}
			delete(w.server, key)
		}
	}
}

// pass lets time pass, and does what is due.
func (w *world) pass(ms int64) {
	for end := w.now + ms; ; {
		at, due := end+1, []func(){}
		add := func(t int64, f func()) {
			if t = max(t, w.now); t < at {
				at, due = t, due[:0]
			}
			if t == at {
				due = append(due, f)
			}
		}
		w.packets = slices.DeleteFunc(w.packets, func(k *packet) bool { return k.run == nil || k.to != nil && k.to.dead })
		for _, k := range w.packets {
			switch {
			case k.to != nil && k.to.stopped:
			case k.to == nil:
				add(max(k.at, w.hangs), func() { w.arrive(k) })
			default:
				add(k.at, func() { w.arrive(k) })
			}
		}
		for _, p := range w.processes {
			add(p.next(), p.act)
		}
		if at > end {
			w.now = end
			w.check()
			return
		}
		w.now = at
		w.check() // of what has changed with time
		due[w.IntN(len(due))]()
		w.check()
	}
}

func (w *world) arrive(k *packet) {
	run := k.run
	k.run = nil
	run()
}

// check holds what a world says.
func (w *world) check() {
	w.tally.Steps++
	now := w.now + w.step
	for _, k := range w.counters {
		for _, p := range w.processes {
			if c := w.server[k.charge.Key]; c != nil && !p.dead {
				if f, ok := c.fields[p.name]; ok && min(f.at, now)+f.lease <= now {
					k.tainted, w.restored = true, true
				}
			}
		}
	}
	w.expire(now)
	for i, k := range w.counters {
		sum := int64(0)
		for _, p := range w.processes {
			if p.dead {
				continue
			}
			counted := w.server.held(now, k.charge.Key, p.name)
			unknown := max(0, p.held[i]-counted)
			if unknown > p.unknown[i] {
				if k.excused += unknown - p.unknown[i]; !k.tainted {
					w.failf("%s holds %d of %s, of which the server counts %d: %+v", p.name, p.held[i], k.charge.Key, counted, w.server[k.charge.Key])
				}
			}
			p.unknown[i] = unknown
			sum += p.held[i]
		}
		if sum > k.limit {
			if w.tally.Over++; sum-k.limit > k.excused {
				w.failf("%d of %s are held, above %d by more than %d, tainted %v", sum, k.charge.Key, k.limit, k.excused, k.tainted)
			}
		}
	}
}

// run runs the schedule.
func (w *world) run() {
	defer func() {
		for _, p := range w.processes {
			p.end()
		}
		if r := recover(); r != nil && r != any(w) {
			panic(r)
		}
	}()
	for range 40 + w.IntN(60) {
		w.disturb()
		for range w.IntN(4) {
			w.request()
		}
		switch w.IntN(12) {
		case 0:
			w.pass(w.Int64N(1_500))
		case 1, 2:
			w.pass(w.Int64N(200))
		default:
			w.pass(w.Int64N(15))
		}
	}
	w.heal()
}

// alive returns a process that runs, or nil.
func (w *world) alive() *process {
	p := w.processes[w.IntN(len(w.processes))]
	if p.dead || p.stopped {
		return nil
	}
	return p
}

// request has a process take or free units.
func (w *world) request() {
	p, i := w.alive(), w.IntN(len(w.counters))
	switch {
	case p == nil:
	case p.held[i] > 0 && w.IntN(5) < 2:
		p.free(i, 1+w.Int64N(p.held[i]), true)
	default:
		p.take(i, 1+w.Int64N(2))
	}
}

// disturb makes a fault, now and then.
func (w *world) disturb() {
	f, p := w.faults, w.alive()
	switch n := w.IntN(60); {
	case n == 0 && f.state:
		w.trace("flushed")
		w.lose(server{})
	case n == 1 && f.state:
		w.trace("restored")
		w.restored = true
		w.lose(w.before.clone())
	case n == 2:
		w.before = w.server.clone()
	case n == 3 && f.clock:
		w.step += w.Int64N(5_000)
	case n == 4 && f.clock:
		w.step -= w.Int64N(5_000)
		w.clock = true
	case n < 7 && f.silence:
		w.hangs = w.now + w.Int64N(6_000)
		w.trace("hangs until %d", w.hangs)
	case n < 9 && f.silence:
		w.away = !w.away
		w.trace("away %v", w.away)
	case n < 11 && f.silence && p != nil:
		p.stopped = true
		w.trace("%s is stopped", p.name)
	case n < 13 && f.silence:
		for _, p := range w.processes {
			p.stopped = false
		}
	case n == 13 && f.kill && p != nil && w.made < 6:
		w.kill(p)
		w.start()
	}
}

func (w *world) kill(p *process) {
	w.trace("%s is killed", p.name)
	p.dead = true
	clear(p.held)
	p.end()
}

// lose makes another server of the one there is, with which all connections end.
func (w *world) lose(s server) {
	w.server = s
	if w.record != nil {
		w.record(call{loses: true, state: s.clone()})
	}
	w.packets = slices.DeleteFunc(w.packets, func(k *packet) bool { return k.to == nil })
	for _, k := range w.counters {
		k.tainted = true
	}
}

// heal stops the faults. What is late arrives now. Within two beats the server counts what is held, and tables have nothing
// else.
func (w *world) heal() {
	ghosts := w.restored || w.faults.doubled
	w.trace("healed")
	doubled := w.faults.doubled
	w.faults, w.away, w.hangs = faults{}, false, 0
	for _, p := range w.processes {
		p.stopped = false
	}
	for _, k := range w.packets {
		k.at = min(k.at, w.now)
	}
	if !doubled && w.IntN(2) == 0 { // under load
		for end := w.now + 2*Beat.Milliseconds(); w.now < end; w.pass(w.Int64N(3)) {
			w.request()
			w.request()
		}
		w.pass(6)
		for _, p := range w.processes {
			for _, k := range w.counters {
				s, e := p.table.lock(&k.charge, false)
				if f, counted := w.server[k.charge.Key], int64(0); f != nil && e != nil && e.doubt == nil && !p.dead {
					if counted = f.fields[p.name].given; counted > e.given {
						s.mu.Unlock()
						w.failf("%s was given %d of %s; the server counts %d", p.name, e.given, k.charge.Key, counted)
					}
				}
				s.mu.Unlock()
			}
		}
	}
	w.pass(2 * Beat.Milliseconds())
	w.exact(ghosts)
	if ghosts {
		lasts := w.now + w.step // until when fields last that no process writes any more
		for _, k := range w.server {
			for _, f := range k.fields {
				lasts = max(lasts, f.at+f.lease)
			}
		}
		w.pass(lasts - w.now - w.step + 1_000)
		w.exact(false)
	}
	for i, k := range w.counters {
		k.tainted, k.excused = false, -w.left(i, nil)
	}
	w.quiet = true
	w.serve()
	w.reclaim()
}

// exact holds that the server counts what is held, and that tables have no other entries. With
// ghosts, the server may count units of a process that holds none, until that tells a total or for a lease: of a take that
// came twice, or came after the server has forgotten the process; or that have been given back since the state to which
// the server has gone back.
func (w *world) exact(ghosts bool) {
	w.t.Helper()
	for _, p := range w.processes {
		if p.dead {
			continue
		}
		some := 0
		for i, k := range w.counters {
			if counted := w.server.held(w.now+w.step, k.charge.Key, p.name); counted != p.held[i] && !(ghosts && counted > 0 && p.held[i] == 0) {
				w.failf("%s holds %d of %s, and the server counts %d", p.name, p.held[i], k.charge.Key, counted)
			}
			if p.held[i] > 0 {
				some++
			}
			if p.table.Doubt(&k.charge) != nil {
				w.failf("%s doubts %s", p.name, k.charge.Key)
			}
		}
		if units, counters := p.table.Held(); counters != some {
			w.failf("%s has entries for %d counters, and holds %d units of %d", p.name, counters, units, some)
		}
	}
}

// left returns how many units of a counter are free for a process: those that killed processes have held are not.
func (w *world) left(i int, own *process) int64 {
	k := w.counters[i]
	left := k.limit
	for _, p := range w.processes {
		if p == own {
			left -= p.held[i]
		} else {
			left -= w.server.held(w.now+w.step, k.charge.Key, p.name)
		}
	}
	return left
}

// serve holds that units that are free are had, at once by who has freed them and by others a gap later, and no more.
func (w *world) serve() {
	for i, k := range w.counters {
		for range 12 {
			p := w.alive()
			if p == nil {
				continue
			}
			w.had(p, i, min(1, w.left(i, p)))
			if w.IntN(4) > 0 || p.held[i] == 0 || w.left(i, p) < 0 {
				continue
			}
			p.free(i, 1, true)
			if w.IntN(2) == 0 {
				w.had(p, i, 1)
			}
			w.pass(Gap.Milliseconds() + pace.Milliseconds() + 6)
			if other := w.alive(); other != nil {
				w.had(other, i, min(1, w.left(i, other)))
			}
		}
		w.trace("%s was served", k.charge.Key)
	}
}

// had holds that a process that takes a unit gets a number of units.
func (w *world) had(p *process, i int, want int64) {
	held, ofDead := p.held[i], w.ofDead(i)
	r := p.take(i, 1)
	w.pass(6)
	if got := p.held[i] - held; r == nil || !r.done || got != max(0, want) && w.ofDead(i) == ofDead {
		w.failf("%s got %d of %s, want %d: %+v", p.name, got, w.counters[i].charge.Key, want, w.server[w.counters[i].charge.Key])
	}
}

// ofDead returns the units of killed processes that the server counts.
func (w *world) ofDead(i int) (units int64) {
	for _, p := range w.processes {
		if p.dead {
			units += w.server.held(w.now+w.step, w.counters[i].charge.Key, p.name)
		}
	}
	return units
}

// reclaim holds that what killed processes have held is free after a lease, and that the others keep what they hold.
func (w *world) reclaim() {
	for _, p := range w.processes {
		for i, k := range w.counters {
			own := w.server[k.charge.Key]
			if own == nil || !p.dead {
				continue
			}
			f, now := own.fields[p.name], w.now+w.step
			if f.at += f.lease; f.given == f.back || f.at <= now || f.at > now+k.lease {
				continue
			}
			w.pass(f.at - now - 1)
			if w.server.held(w.now+w.step, k.charge.Key, p.name) == 0 {
				w.failf("units of %s are free before its lease has ended", p.name)
			}
			w.pass(1_000)
			if w.server.held(w.now+w.step, k.charge.Key, p.name) != 0 {
				w.failf("units of %s are held after its lease", p.name)
			}
			_ = i
		}
	}
	w.pass(2_500)
	w.exact(false)
}
