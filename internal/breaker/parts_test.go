package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// partedStore has a part for each zone, which is its name. Those in down fail; a request that
// needs several of which some are down says which, or not if it is silent.
type partedStore struct {
	window.Store

	mu     sync.Mutex
	down   []string
	gone   []string
	silent bool
	asked  int
	pinged map[string]int
}

func (s *partedStore) Parts(charges []window.Charge, names []string) []string {
	for _, c := range charges {
		names = append(names, c.Zone)
	}
	return names
}

func (s *partedStore) Take(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	var failed []string
	for _, c := range charges {
		if slices.Contains(s.down, c.Zone) {
			failed = append(failed, c.Zone)
		}
	}
	switch {
	case failed == nil:
		return []window.Decision{{Allowed: true}}, nil
	case s.silent:
		return nil, errDown
	}
	return nil, fmt.Errorf("asked: %w", &engine.PartError{Parts: failed, Err: errDown})
}

func (s *partedStore) Ping(ctx context.Context) error { return s.PingPart(ctx, "") }

func (s *partedStore) PingPart(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinged[name]++
	if slices.Contains(s.down, name) {
		return errDown
	}
	return nil
}

func (s *partedStore) HasPart(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.Contains(s.gone, name)
}

func (s *partedStore) set(down ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// partedBreaker is a Breaker under test, in a bubble of synctest.
type partedBreaker struct {
	*testing.T
	*breaker.Breaker
	store   *partedStore
	mu      sync.Mutex
	changes []string
}

func inPartedBubble(t *testing.T, run func(b *partedBreaker)) {
	synctest.Test(t, func(t *testing.T) {
		b := &partedBreaker{T: t, store: &partedStore{pinged: make(map[string]int)}}
		b.Breaker = breaker.New(b.store, func(part string, open bool, _ error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changes = append(b.changes, fmt.Sprint(part, " ", open))
		}, nil)
		run(b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// take asks about zones, and tells whether the store was asked.
func (b *partedBreaker) take(zones ...string) (asked bool, err error) {
	charges := make([]window.Charge, len(zones))
	for i := range zones {
		charges[i].Zone = zones[i]
	}
	before := b.store.asked
	_, err = b.Take(b.Context(), charges)
	if open := errors.Is(err, breaker.ErrOpen); open == (b.store.asked > before) {
		b.Errorf("Take of %q = %v, and the store was asked: %v", zones, err, !open)
	}
	return b.store.asked > before, err
}

func (b *partedBreaker) wantAsked(want bool, zones ...string) {
	b.Helper()
	if asked, err := b.take(zones...); asked != want {
		b.Errorf("Take of %q = %v, asked: %v, want %v", zones, err, asked, want)
	}
}

func (b *partedBreaker) wantChanges(want ...string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.changes, want) {
		b.Errorf("changes %q, want %q", b.changes, want)
	}
}

// TestBreakerParts has one part of a store away. Requests that need other parts only are
// decided, whatever comes between the failures, and each part is pinged by itself.
func TestBreakerParts(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		b.store.set("b")
		for range 3 {
			b.wantChanges()
			b.wantAsked(true, "b")
			b.wantAsked(true, "a")
			b.wantAsked(true, "a", "c")
		}
		b.wantChanges("b true")
		for range 10 {
			b.wantAsked(false, "b")
			b.wantAsked(false, "a", "b")
			b.wantAsked(true, "a")
		}
		time.Sleep(2 * time.Second)
		b.wantChanges("b true")
		if n := b.store.pinged["b"]; n < 9 || n > 10 || len(b.store.pinged) != 1 {
			b.Errorf("pings by part: %v, want five a second of b", b.store.pinged)
		}
		b.store.set("b", "c")
		for range 3 {
			b.wantAsked(true, "c")
		}
		b.wantChanges("b true", "c true")
		b.store.set("c")
		time.Sleep(time.Second)
		b.wantChanges("b true", "c true", "b false")
		b.wantAsked(true, "a", "b")
		b.wantAsked(false, "b", "c")
		b.store.set()
		time.Sleep(time.Second)
		b.wantChanges("b true", "c true", "b false", "c false")
		b.wantAsked(true, "a", "b", "c")
	})
}

// A request on several parts fails for one of them: the others are not to blame.
func TestBreakerPartsTogether(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		b.store.set("b")
		for range 3 {
			b.wantAsked(true, "a", "b")
		}
		b.wantChanges("b true")
		b.store.set()
		time.Sleep(time.Second)
		b.wantChanges("b true", "b false")

		b.store.set("a", "b")
		b.store.silent = true // which one is unknown
		for range 10 {
			b.wantAsked(true, "a", "b")
		}
		b.wantChanges("b true", "b false")
		b.store.silent = false
		for range 3 {
			b.wantAsked(true, "a", "b", "c")
		}
		b.wantAsked(true, "c")
		b.wantAsked(false, "a")
		b.wantAsked(false, "b")
	})
}

// A success of a part ends its own row of failures, and no other's.
func TestBreakerPartsSucceed(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		for range 5 {
			b.store.set("a", "b")
			b.wantAsked(true, "a")
			b.wantAsked(true, "a")
			b.store.set("b")
			b.wantAsked(true, "a")
		}
		b.wantChanges()
		b.wantAsked(true, "b")
		b.wantAsked(true, "b")
		b.wantAsked(true, "a")
		b.wantAsked(true, "b")
		b.wantChanges("b true")
	})
}

// Others say of a part that it is away.
func TestBreakerPartsDoubt(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		b.store.set("b")
		b.ForceOpen("b", errDown)
		b.wantAsked(false, "b")
		b.wantAsked(true, "a")
		b.store.set()
		time.Sleep(time.Second)
		b.wantAsked(true, "b")
		b.wantChanges("b true", "b false")
		b.store.set("")
		b.ForceOpen("", errDown)
		b.wantAsked(false, "a")
		b.store.set()
		time.Sleep(time.Second)
		b.wantAsked(true, "a")
		b.wantChanges("b true", "b false", " true", " false")
	})
}

// Nodes come and go, as in a Cluster whose pods get other addresses. Each fails, and some are away for a while. What is known
// of those that have left is forgotten, and those that are there count as before.
func TestPartsThatLeaveAreForgotten(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		node := func(i int) string { return fmt.Sprint("node ", i) }
		for i := range 300 {
			b.store.set(node(i))
			for range 1 + i%4 {
				_, _ = b.take(node(i))
			}
			time.Sleep(time.Second)
			b.store.set()
			time.Sleep(time.Second) // a ping of one that was away succeeds
			b.store.mu.Lock()
			b.store.gone = append(b.store.gone, node(i))
			b.store.mu.Unlock()
		}
		b.store.set("last")
		for range 2 {
			b.wantAsked(true, "last")
		}
		names, failing := b.PartNames()
		if len(names) != 1 || failing != 1 {
			t.Errorf("%d parts are known, %d of them fail; want one that fails", len(names), failing)
		}
		b.wantAsked(true, "last") // the third failure
		synctest.Wait()
		b.wantAsked(false, "last")
		b.store.set()
		time.Sleep(time.Second)
		b.wantAsked(true, "last")
		if names, failing := b.PartNames(); len(names) != 1 || failing != 0 {
			t.Errorf("parts %q are known, %d of them fail", names, failing)
		}
	})
}

// Parts fail, succeed and are forgotten at the same time. In the end none fails.
func TestPartsAreForgottenWhileTheyFail(t *testing.T) {
	inPartedBubble(t, func(b *partedBreaker) {
		b.store.gone = []string{"0", "1", "2", "3"}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 2000 {
					name := fmt.Sprint((i + j) % 4)
					if j%3 == 0 {
						b.store.set(name)
					} else {
						b.store.set()
					}
					_, _ = b.Take(t.Context(), []window.Charge{{Zone: name}})
				}
			})
		}
		all.Wait()
		b.store.set()
		time.Sleep(time.Second)
		for i := range 4 {
			_, _ = b.take(fmt.Sprint(i))
		}
		if names, failing := b.PartNames(); failing != 0 {
			t.Errorf("of parts %q %d fail, want none", names, failing)
		}
	})
}
