package fallback

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/owed"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// Counts are what this process counts in a store's place, knows of its counters and owes
// them. Guards of stores that hold the same counters have them in common: they go on
// when one with other options takes over, as after a reload. They are safe for
// concurrent use.
type Counts struct {
	start time.Time
	local *memory.Store
	// Units that were admitted here, and the store does not have.
	owed debts
	// Units that were admitted here or booked, and the store may have: what is known of
	// it may be without them.
	inDoubt debts
	debtors *owed.List[uint64, debtor] // by hash

	background

	away     away
	seen     atomic.Int64 // processes, see presence
	users    atomic.Int64 // see EnableLocal
	once     sync.Once
	lastSeen *lastSeen // see table
}

// away counts the guards that find a part of the store away, by its name; "" is the whole.
type away struct {
	mu sync.Mutex // guards by
	by map[string]int
}

func (a *away) add(part string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by == nil {
		a.by = make(map[string]int)
	}
	if a.by[part] += n; a.by[part] == 0 {
		delete(a.by, part)
	}
}

// parts returns those that a guard finds away.
func (a *away) parts() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.by))
}

// NewCounts returns counts of nothing. Close them after the guards that have them.
func NewCounts() *Counts {
	c := &Counts{start: time.Now(), local: memory.New(memory.Options{}), owed: newDebts(maxOwed), inDoubt: newDebts(maxInDoubt)}
	c.debtors = owed.New[uint64](owed.Options[debtor]{
		Most: maxDebtors, None: c.isSettled, Book: c.book,
		After: bookAfter, Again: bookAgain, Pause: bookPause, Round: bookMost,
	})
	return c
}

// Close ends what sweeps the counts. Their guards must be closed.
func (c *Counts) Close() error {
	c.debtors.Wait()
	return errors.Join(c.local.Close(), c.owed.store.Close(), c.inDoubt.store.Close())
}

// EnableLocal announces calls of TakeLocal on a guard. From then on what the store
// decides is kept.
func (c *Counts) EnableLocal() {
	c.table()
	c.users.Add(1)
}

// DisableLocal takes one Use back.
func (c *Counts) DisableLocal() { c.users.Add(-1) }

func (c *Counts) table() *lastSeen {
	c.once.Do(func() { c.lastSeen = newLastSeen() })
	return c.lastSeen
}

// now returns the time in ms, since any moment.
func (c *Counts) now() int64 { return time.Since(c.start).Milliseconds() }
