// Package owed lists the counters on which something is owed to a store, and has it booked: by the next request on
// the counter, or in the background.
package owed

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// List lists counters by their keys K. A T says what is owed on one. It is safe for concurrent use; the functions that
// it is given run under its lock, and must not call it.
type List[K comparable, T any] struct {
	Options[T]
	n     atomic.Int64 // counters in byKey
	wake  chan struct{}
	group sync.WaitGroup // the background

	mu      sync.Mutex // guards what follows
	byKey   map[K]*counter[K, T]
	queue   list.List // of counters, in the order in which the background books them
	open    int
	running bool
}

// Options of a List.
type Options[T any] struct {
	Most int           // counters that are listed
	None func(*T) bool // reports whether nothing is owed any more
	// Book books what is owed on counters that are Due, at most `most`. It returns how many there were, and an
	// error that says something about the store.
	Book  func(most int, due time.Time) (int, error)
	After time.Duration // how long the background waits for requests to book, and after a failure
	Again time.Duration // how long a counter waits that was to be booked
	Pause time.Duration // between two rounds
	Round int           // the most counters in one round
}

type counter[K comparable, T any] struct {
	key  K
	what T
	at   *list.Element // nil: the counter is not listed, but it is being booked
	due  time.Time
	done chan struct{} // closed by Finish; nil: the counter is not being booked
}

// New returns a list of nothing. The background runs from Open on.
func New[K comparable, T any](o Options[T]) *List[K, T] {
	return &List[K, T]{Options: o, wake: make(chan struct{}, 1), byKey: make(map[K]*counter[K, T])}
}

// Len returns how many counters are listed, or being booked.
func (l *List[K, T]) Len() int64 { return l.n.Load() }

// Has reports whether a counter is listed.
func (l *List[K, T]) Has(key K) bool { return l.Len() > 0 && l.Change(key, func(*T) {}) }

// Change changes what is owed on a counter. It reports whether the counter is listed.
func (l *List[K, T]) Change(key K, change func(*T)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.byKey[key]
	if c == nil || c.at == nil {
		return false
	}
	change(&c.what)
	l.tidy(c)
	return true
}

// Add is Change, and lists the counter. It reports whether there is room; if not, the change is forgotten.
func (l *List[K, T]) Add(key K, change func(*T)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(key)
	change(&c.what)
	if c.at == nil && !l.makeRoom() {
		return false
	}
	if c.at == nil {
		c.at, c.due = l.queue.PushBack(c), time.Now()
		l.keep(c)
	}
	l.tidy(c)
	l.begin()
	return true
}

// Begin makes the caller the only one who books on a counter, until Finish, once no other caller does. It reports false if
// take, which takes what is to be booked, says that there is nothing.
func (l *List[K, T]) Begin(ctx context.Context, key K, take func(*T) bool) (bool, error) {
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		begun, wait := l.Try(key, take)
		if wait == nil {
			return begun, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// Try is Begin, but returns what to wait for if the counter is being booked.
func (l *List[K, T]) Try(key K, take func(*T) bool) (begun bool, wait <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(key)
	if c.done != nil {
		return false, c.done
	}
	if begun = take(&c.what); begun {
		c.done = make(chan struct{})
		l.keep(c)
	} else {
		l.tidy(c)
	}
	return begun, nil
}

// Finish ends what Begin began. What could not be booked has to be listed again by then.
func (l *List[K, T]) Finish(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.byKey[key]
	close(c.done)
	c.done = nil
	l.tidy(c)
}

// Due returns the counters that have waited for longest at a time, and lists them again.
func (l *List[K, T]) Due(most int, now time.Time) (keys []K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.queue.Front(); e != nil && len(keys) < most; e = l.queue.Front() {
		c := e.Value.(*counter[K, T])
		if c.due.After(now) {
			break
		}
		if l.tidy(c) {
			c.due = now.Add(l.Again)
			l.queue.MoveToBack(e)
			keys = append(keys, c.key)
		}
	}
	return keys
}

// Empty takes all off the list, which has no room from then on, and returns what is owed.
func (l *List[K, T]) Empty() (all []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Most = 0
	for e := l.queue.Front(); e != nil; e = l.queue.Front() {
		c := e.Value.(*counter[K, T])
		all = append(all, c.what)
		l.drop(c)
	}
	return all
}

// of returns a counter, which may be none that is kept. mu must be held, as in what follows.
func (l *List[K, T]) of(key K) *counter[K, T] {
	if c := l.byKey[key]; c != nil {
		return c
	}
	return &counter[K, T]{key: key}
}

func (l *List[K, T]) keep(c *counter[K, T]) {
	l.byKey[c.key] = c
	l.n.Store(int64(len(l.byKey)))
}

// tidy drops a counter on which nothing is owed any more. It reports whether the counter is still there.
func (l *List[K, T]) tidy(c *counter[K, T]) bool {
	if c.done == nil && (c.at == nil || l.None(&c.what)) {
		l.drop(c)
		return false
	}
	return true
}

// drop takes a counter off the list, and forgets it unless it is being booked.
func (l *List[K, T]) drop(c *counter[K, T]) {
	if c.at != nil {
		l.queue.Remove(c.at)
		c.at = nil
	}
	if c.done == nil {
		delete(l.byKey, c.key)
	}
	l.n.Store(int64(len(l.byKey)))
}

// makeRoom reports whether one more counter can be listed: perhaps in place of one, among a few, on which nothing is
// owed any more.
func (l *List[K, T]) makeRoom() bool {
	looked := 0
	for _, c := range l.byKey {
		if l.queue.Len() < l.Most || looked == 8 {
			break
		}
		l.tidy(c)
		looked++
	}
	return l.queue.Len() < l.Most
}
