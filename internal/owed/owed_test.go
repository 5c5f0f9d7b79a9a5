package owed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/owed"
)

const (
	after = 100 * time.Millisecond
	again = 500 * time.Millisecond
	pause = 10 * time.Millisecond
)

// books is a list of units, and what was booked of it.
type books struct {
	*owed.List[int, int]
	mu     sync.Mutex
	fails  func(key int) error
	rounds [][]int
	at     []time.Time
	units  int
}

func newBooks(most int) *books {
	b := &books{fails: func(int) error { return nil }}
	b.List = owed.New[int](owed.Options[int]{
		Most: most, None: func(units *int) bool { return *units == 0 }, Book: b.book,
		After: after, Again: again, Pause: pause, Round: 8,
	})
	return b
}

func (b *books) owe(key, units int) bool { return b.Add(key, func(u *int) { *u += units }) }

// book books what is due, one counter after the other.
func (b *books) book(most int, due time.Time) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.Due(most, due)
	if len(keys) > 0 {
		b.rounds, b.at = append(b.rounds, keys), append(b.at, time.Now())
	}
	for _, key := range keys {
		units := 0
		begun, _ := b.Try(key, take(&units))
		if !begun {
			continue
		}
		if failed := b.fails(key); failed != nil {
			err = failed
			b.owe(key, units)
		} else {
			b.units += units
		}
		b.Finish(key)
	}
	return len(keys), err
}

func take(into *int) func(*int) bool {
	return func(units *int) bool {
		*into, *units = *units, 0
		return *into > 0
	}
}

func (b *books) sizes() (sizes []int) {
	for _, round := range b.rounds {
		sizes = append(sizes, len(round))
	}
	return sizes
}

// TestRounds books one counter at first, then double the number each time, the oldest first, and one again after a
// failure. A counter that failed waits.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, away := time.Now(), errors.New("away")
		b := newBooks(100)
		b.fails = func(key int) error {
			if key == 5 && time.Since(start) < again {
				return away
			}
			return nil
		}
		for key := range 30 {
			b.owe(key, 1)
			b.owe(key, 1)
		}
		time.Sleep(time.Minute)
		if b.rounds != nil {
			t.Fatalf("booked %v before anybody could", b.rounds)
		}
		start = time.Now()
		b.Open()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := b.sizes(), []int{1, 2, 4, 1, 2, 4, 8, 8, 1}; !slices.Equal(got, want) {
			t.Errorf("rounds of %v, want %v", got, want)
		}
		want := []time.Duration{0, pause, pause, after, pause, pause, pause, pause}
		for i := range want {
			if i == 0 && b.at[0].Sub(start) != after || i > 0 && b.at[i].Sub(b.at[i-1]) != want[i] {
				t.Errorf("round %d comes %s after the start, want a pause of %s", i, b.at[i].Sub(start), want[i])
			}
		}
		order := slices.Concat(b.rounds[:8]...)
		if !slices.IsSorted(order) {
			t.Errorf("booked in the order %v", order)
		}
		if last := b.rounds[8]; last[0] != 5 || b.at[8].Sub(b.at[2]) < again {
			t.Errorf("the one that failed comes as %v, %s later", last, b.at[8].Sub(b.at[2]))
		}
		if b.units != 60 || b.Len() != 0 {
			t.Errorf("%d units are booked, want 60, and %d counters left", b.units, b.Len())
		}
		b.Close()
		b.Wait()
	})
}

// TestBackgroundRests ends the background when nothing is listed and when no guard can book, and starts it again.
func TestBackgroundRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBooks(100)
		for range 3 {
			b.Open()
			b.Open()
			b.Close()
			b.owe(1, 1)
			time.Sleep(time.Second)
			b.Close()
			b.Wait()
			b.owe(1, 1)
			time.Sleep(time.Second)
		}
		if b.units != 5 || b.Len() != 1 {
			t.Errorf("%d units are booked, and %d counters listed; want 5 and 1", b.units, b.Len())
		}
	})
}

// TestBegin lets one caller at a time book on a counter: the others wait, as long as they can, and find what is left.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ctx := newBooks(100), t.Context()
		var units int
		for _, listed := range []bool{true, false} {
			if begun, err := b.Begin(ctx, 1, take(&units)); begun || err != nil {
				t.Fatalf("Begin = %v, %v where nothing is owed", begun, err)
			}
			if listed {
				b.owe(1, 3)
			}
			any := func(u *int) bool { _ = take(&units)(u); return true }
			if begun, err := b.Begin(ctx, 1, any); !begun || err != nil || listed != (units == 3) {
				t.Fatalf("Begin = %v, %v with %d units, listed: %v", begun, err, units, listed)
			}
			if begun, wait := b.Try(1, take(&units)); begun || wait == nil {
				t.Error("a second one has begun")
			}
			hurried, cancel := context.WithTimeout(ctx, time.Second)
			if begun, err := b.Begin(hurried, 1, take(&units)); begun || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Begin = %v, %v, want to wait for a second", begun, err)
			}
			if begun, err := b.Begin(hurried, 2, take(&units)); begun || err == nil {
				t.Errorf("Begin = %v, %v of a request that is over", begun, err)
			}
			cancel()
			var found [3]int
			var waiting sync.WaitGroup
			for i := range found {
				waiting.Go(func() {
					if begun, _ := b.Begin(ctx, 1, take(&found[i])); begun {
						b.Finish(1)
					}
				})
			}
			synctest.Wait()
			b.owe(1, 7)
			b.Finish(1)
			waiting.Wait()
			slices.Sort(found[:])
			if found != [3]int{0, 0, 7} || b.Len() != 0 {
				t.Errorf("those who waited find %v, and %d counters are left", found, b.Len())
			}
		}
	})
}

// TestRoom lists no more counters than it may: in place of one on which nothing is owed any more, if there is one.
func TestRoom(t *testing.T) {
	settled := map[int]bool{}
	l := owed.New[int](owed.Options[int]{Most: 4, None: func(key *int) bool { return settled[*key] }})
	add := func(key int) (called, ok bool) {
		ok = l.Add(key, func(own *int) { *own, called = key, true })
		return called, ok
	}
	for key := range 4 {
		if _, ok := add(key); !ok {
			t.Fatalf("no room for counter %d", key)
		}
	}
	if called, ok := add(4); !called || ok || l.Has(4) {
		t.Errorf("a fifth counter: called %v, listed %v", called, ok)
	}
	if _, ok := add(2); !ok {
		t.Error("no change of a counter that is listed")
	}
	settled[2] = true
	if _, ok := add(4); !ok || l.Has(2) || l.Len() != 4 {
		t.Errorf("a counter in place of another: %v, %d are listed", ok, l.Len())
	}
	if l.Change(2, func(*int) { t.Error("a change of what is not listed") }) {
		t.Error("it is")
	}
	delete(settled, 2)
	settled[0] = true
	if keys, want := l.Due(2, time.Now()), []int{1, 3}; !slices.Equal(keys, want) {
		t.Errorf("due: %v, want %v", keys, want)
	}
}

// TestRest books each counter once, and stops at a failure. What is left has no owner then.
func TestRest(t *testing.T) {
	for _, failing := range []int{-1, 9} {
		t.Run(fmt.Sprint(failing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBooks(100)
				b.fails = func(key int) error {
					if key == failing {
						return errors.New("away")
					}
					return nil
				}
				for key := range 20 {
					b.owe(key, 1)
				}
				_ = b.Due(3, time.Now()) // they are the last
				b.Rest(b.book)
				want, left := []int{1, 2, 4, 8, 5}, 0
				if failing >= 0 {
					want, left = []int{1, 2, 4}, 1+20-7
				}
				if got := b.sizes(); !slices.Equal(got, want) {
					t.Errorf("rounds of %v, want %v", got, want)
				}
				if rest := b.Empty(); len(rest) != left || b.Len() != 0 {
					t.Errorf("%d are left, want %d", len(rest), left)
				}
				if b.owe(1, 1) {
					t.Error("there is room after all")
				}
				b.Rest(func(int, time.Time) (int, error) { t.Error("a round of nothing"); return 0, nil })
			})
		})
	}
}

// TestEmptyWhileBooked takes a counter off the list that is being booked: nothing of it can be listed again.
func TestEmptyWhileBooked(t *testing.T) {
	b := newBooks(1)
	b.owe(1, 1)
	units := 0
	if begun, _ := b.Try(1, take(&units)); !begun {
		t.Fatal("not begun")
	}
	_ = b.Empty()
	if b.owe(1, units) || b.Change(1, func(*int) {}) || b.Len() != 1 {
		t.Errorf("it is listed, or not booked any more: %d", b.Len())
	}
	b.Finish(1)
	if b.Len() != 0 {
		t.Error("it is there still")
	}
}
