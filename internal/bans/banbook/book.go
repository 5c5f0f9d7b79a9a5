// Package banbook holds the bans of a store in this process: requests ask it without waiting, and it keeps them the same on
// all Caddys.
package banbook

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const (
	// refresh is the time between two looks at what other Caddys have changed. With a call it is less than the second
	// within which a ban is in force everywhere.
	refresh = 500 * time.Millisecond
	// together is how long strikes wait for others, to travel in one call.
	together = 50 * time.Millisecond
	// longestCall is how long a call takes at most.
	longestCall = time.Second
	// mostWrites is how many writes a call has, and mostPending how many strikes wait. Further ones are not noted: their
	// clients are denied again.
	mostWrites, mostPending = 500, 10_000
	// betweenTidies is the time between two looks at what is over.
	betweenTidies = 2 * time.Second
)

// Book holds the bans of a store in this process.
type Book struct {
	id     engine.StoreID
	name   string
	store  bans.Store
	remote bool // the store has a server, and other Caddys
	names  names
	now    func() int64 // in milliseconds: a clock that does not step, or that of a Stepper
	zones  sync.Map     // *Zone, by name
	known  known
	recent recent
	wake   chan struct{}

	mu      sync.Mutex // guards what follows; held for no call of a server
	pending []bans.Write
	waiting map[string]bool // members with a strike in pending
	runs    int             // configurations
	heir    *Book           // of a closed book: it takes strikes of requests that end late; nil: none does
	stop    context.CancelFunc
	ended   *sync.WaitGroup

	calls   sync.Mutex // guards what follows; held for a call, and until what it answers is taken up
	change  int64      // the newest change that is known
	witness string     // the member that it was of
	own     *own       // what happened here while the store was away; nil: nothing
	lost    bool       // the store has lost records that are not written again yet
	tidied  int64
}

// own is what happened in this process while the store was away.
type own struct {
	*bans.Table
	change  int64
	witness string
}

// New returns the book of a store, which knows what a book before it knows that is of the same store. Close it. Of other
// Caddys' bans it knows none before Begin.
func New(store window.Store, id engine.StoreID) *Book {
	b := &Book{
		id: id, name: strings.ToValidUTF8(store.String(), "\uFFFD"), names: namesOf(store),
		waiting: make(map[string]bool), wake: make(chan struct{}, 1),
		now: func() int64 { return uptime.Now().Milliseconds() },
	}
	b.known.seed = maphash.MakeSeed()
	if s, ok := store.(bans.Store); ok {
		b.store, b.remote = s, true
	} else {
		wall := storeclock.Of(b.name).Milli
		if s, ok := store.(engine.Stepper); ok {
			b.now, wall = s.Time, s.Time
		}
		b.store = bans.NewTable(wall)
	}
	b.calls.Lock()
	defer b.calls.Unlock()
	for _, former := range b.open() {
		former.calls.Lock()
		former.known.each(func(name string, f *fact) { b.put(name, f) })
		b.change, b.witness = former.change, former.witness
		former.calls.Unlock()
	}
	return b
}

// open adds b to the books that are open. It returns those before it of the same store.
func (b *Book) open() (formers []*Book) {
	books.Lock()
	defer books.Unlock()
	for _, o := range books.all {
		if o.id == b.id && b.remote {
			formers = append(formers, o)
		}
	}
	books.all = append(books.all, b)
	return formers
}

// Close undoes New. What the store does not have yet goes to another book of the store, if one is open.
func (b *Book) Close() {
	books.Lock()
	books.all = slices.DeleteFunc(books.all, func(o *Book) bool { return o == b })
	next := slices.IndexFunc(books.all, func(o *Book) bool { return o.id == b.id && b.remote })
	var heir *Book
	if next >= 0 {
		heir = books.all[next]
	}
	books.Unlock()
	b.mu.Lock()
	isLate := len(b.pending) > 0 // strikes after End
	b.heir = heir
	b.mu.Unlock()
	if isLate {
		b.flush(context.Background())
	}
	b.calls.Lock()
	own := b.own
	b.calls.Unlock()
	if own != nil && heir != nil {
		heir.inherit(own.All())
	}
}

// inherit takes over what another book could not bring the store.
func (b *Book) inherit(all []bans.Change) {
	b.calls.Lock()
	defer b.calls.Unlock()
	b.writeHere(merges(all))
}

// merges returns the writes that bring records to a store.
func merges(all []bans.Change) []bans.Write {
	writes := make([]bans.Write, len(all))
	for i, c := range all {
		writes[i] = bans.Write{Op: bans.Merge, Member: c.Member, Record: c.Record}
	}
	return writes
}

// books are those that are open: for metrics, and for reloads that open a store in another way.
var books struct {
	sync.Mutex // guards all
	all        []*Book
}

// Collector tells what newInForce describes, as of when it is asked.
type Collector struct{}

func newInForce() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "caddy", Subsystem: "sliding_window", Name: "bans", Help: "Bans of a zone that are in force.",
	}, []string{"zone"})
}

// Vectors returns the metrics of the Collector, without values.
func (Collector) Vectors() []prometheus.Collector { return []prometheus.Collector{newInForce()} }

// Describe implements prometheus.Collector.
func (Collector) Describe(to chan<- *prometheus.Desc) { newInForce().Describe(to) }

// Collect implements prometheus.Collector.
func (Collector) Collect(to chan<- prometheus.Metric) {
	n := make(map[string]int)
	books.Lock()
	defer books.Unlock()
	for _, b := range books.all {
		b.zones.Range(func(name, _ any) bool { n[name.(string)] += 0; return true })
		b.Count(n)
	}
	inForce := newInForce()
	for zone, bans := range n {
		inForce.WithLabelValues(zone).Set(float64(bans))
	}
	inForce.Collect(to)
}

// Begin keeps the bans the same on all Caddys from now on, until End. It waits for the first look at the store.
func (b *Book) Begin() {
	b.mu.Lock()
	b.runs++
	if b.runs > 1 || !b.remote {
		b.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop, b.ended = cancel, new(sync.WaitGroup)
	b.mu.Unlock()
	b.flush(ctx)
	b.ended.Go(func() { b.run(ctx) })
}

// End undoes Begin. Strikes that wait are written.
func (b *Book) End() {
	b.mu.Lock()
	b.runs--
	last := b.runs == 0 && b.remote
	b.mu.Unlock()
	if last {
		b.stop()
		b.ended.Wait()
	}
}

// run writes strikes, and looks at what others have changed.
func (b *Book) run(ctx context.Context) {
	for {
		wait := time.NewTimer(refresh - rand.N(refresh/10)) //nolint:gosec // spreads load
		select {
		case <-ctx.Done():
			wait.Stop()
			b.flush(context.WithoutCancel(ctx))
			return
		case <-wait.C:
		case <-b.wake:
			wait.Reset(together)
			select {
			case <-ctx.Done():
			case <-wait.C:
			}
		}
		b.flush(ctx)
	}
}

// flush writes the strikes that wait, and takes up what others have changed.
func (b *Book) flush(ctx context.Context) {
	b.mu.Lock()
	writes := b.pending
	b.pending, b.waiting = nil, make(map[string]bool)
	b.mu.Unlock()
	for {
		some := writes[:min(len(writes), mostWrites)]
		writes = writes[len(some):]
		more, _, err := b.call(ctx, some)
		if len(writes) == 0 && (!more || err != nil) {
			break
		}
	}
}

// call makes writes, and takes up what the store answers. What it cannot write because the store is away holds in this
// process.
func (b *Book) call(ctx context.Context, writes []bans.Write) (more bool, done []bool, err error) {
	b.calls.Lock()
	defer b.calls.Unlock()
	if b.remote {
		b.giveOwn(ctx)
	}
	a, err := b.exchange(ctx, bans.Ask{Known: b.change, Witness: b.witness, Writes: writes})
	if err != nil {
		b.writeHere(slices.DeleteFunc(slices.Clone(writes), func(w bans.Write) bool { return w.Op != bans.Strike }))
		return false, nil, err
	}
	b.takeUp(&a, &b.change, &b.witness)
	b.tell(writes, &a)
	if b.lost = b.lost || a.Lost; b.lost {
		b.restore(ctx)
	}
	if now := b.now(); now-b.tidied >= betweenTidies.Milliseconds() || now < b.tidied {
		b.tidied = now
		b.tidy(now)
	}
	return a.More, a.Done, nil
}

func (b *Book) exchange(ctx context.Context, ask bans.Ask) (bans.Answer, error) {
	if b.remote {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longestCall)
		defer cancel()
	}
	return b.store.ExchangeBans(ctx, ask)
}

// takeUp notes what has changed. calls must be locked.
func (b *Book) takeUp(a *bans.Answer, change *int64, witness *string) {
	for i := range a.Changes {
		c := &a.Changes[i]
		b.learn(c.Member, &c.Record, a.Now)
		*change, *witness = c.Record.Change, c.Member
	}
	if a.Lost && len(a.Changes) == 0 {
		*change, *witness = 0, ""
	}
}

// writeHere makes strikes, and merges of another book's records, in this process, on what is known here. calls must be locked.
func (b *Book) writeHere(writes []bans.Write) {
	if len(writes) == 0 {
		return
	}
	if b.own == nil {
		b.own = &own{Table: bans.NewTable(storeclock.Of(b.name).Milli)}
	}
	a, _ := b.own.ExchangeBans(context.Background(), bans.Ask{Known: b.own.change, Witness: b.own.witness, Writes: writes})
	b.takeUp(&a, &b.own.change, &b.own.witness)
	b.tell(writes, &a)
}

// giveOwn brings the store what happened here while it was away. calls must be locked.
func (b *Book) giveOwn(ctx context.Context) {
	if b.own == nil {
		return
	}
	if _, err := b.merge(ctx, b.own.All()); err == nil {
		b.own = nil
	}
}

// restore brings the store what it has lost. calls must be locked.
func (b *Book) restore(ctx context.Context) {
	var all []bans.Change
	now := b.now()
	b.known.each(func(name string, f *fact) {
		if now < f.ends {
			all = append(all, bans.Change{Member: name, Record: f.Record})
		}
	})
	b.lost = false
	n, err := b.merge(ctx, all)
	if b.lost = b.lost || err != nil; n > 0 {
		storestate.Logger(b.name).Warn("the store had lost bans; they were written again", zap.Int("bans", n), zap.Error(err))
	}
}

// merge brings records to the store, and returns how many it did not have so.
func (b *Book) merge(ctx context.Context, all []bans.Change) (n int, err error) {
	for some := range slices.Chunk(all, mostWrites) {
		a, err := b.exchange(ctx, bans.Ask{Known: b.change, Witness: b.witness, Writes: merges(some)})
		if err != nil {
			return n, err
		}
		b.takeUp(&a, &b.change, &b.witness)
		b.lost = b.lost || a.Lost
		for _, done := range a.Done {
			if done {
				n++
			}
		}
	}
	return n, nil
}

// learn notes what has become of a member. calls must be locked.
func (b *Book) learn(name string, r *bans.Record, now int64) {
	m, ok := parseName(name)
	if !ok {
		return
	}
	before := b.known.get([]byte(name))
	here := b.now()
	f := &fact{Record: *r, member: m, ends: here + r.Left(now)}
	if m.Network != "" {
		var err error
		if f.prefix, err = netip.ParsePrefix(m.Network); err != nil {
			return
		}
	}
	switch {
	case before != nil && before.lifted && r.Began <= before.Lifted, before.bans(here) && r.Began < before.Began && r.Lifted < before.Began:
		return // the store has an older copy
	case r.Left(now) > 0:
	case !before.bans(here):
		return
	case r.Lifted >= before.Began: // it is remembered, as long as an older copy could bring it back
		f.ends, f.lifted = before.ends, true
	default: // the store has an older record, or another clock
		return
	}
	b.put(name, f)
}

// tidy forgets what is over, and what is too much. calls must be locked.
func (b *Book) tidy(now int64) {
	for _, name := range b.known.tooMany(now) {
		b.put(name, nil)
	}
}
