package overridebook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// modelStore is a store that keeps overrides in a hash, as Redis does.
type modelStore struct {
	window.Store
	now                  *model
	hash                 map[string]string
	snapshots            []map[string]string
	stale                *map[string]string // answers the next read
	name                 string
	readOnly             bool
	away                 bool
	loseAnswer, loseCall bool // of writes
	between              bool // something happens between a read and a write
}

// bookOn returns a book on the store that looks only when it is told to.
func (s *modelStore) bookOn(t *testing.T, storage Storage) *Book {
	t.Helper()
	b := New(s)
	b.clock = new(storeclock.Clock) // not one that has learned
	b.place.Use(storage)
	if err := b.load(Patience); err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *modelStore) String() string                           { return cmp.Or(s.name, "model") }
func (s *modelStore) HashesKeys() bool                         { return false }
func (s *modelStore) HashKey(string, int) (_ [32]byte, _ bool) { return }

func (s *modelStore) ReadOverrides(_ context.Context, known string) (version string, records map[string]string, err error) {
	if s.away {
		return "", nil, window.ErrUnavailable
	}
	hash := s.hash
	if s.stale != nil {
		hash, s.stale = *s.stale, nil
	}
	if hash["v"] == known || hash["v"] == "" {
		return hash["v"], nil, nil
	}
	records = maps.Clone(hash)
	delete(records, "v")
	return hash["v"], records, nil
}

func (s *modelStore) WriteOverrides(_ context.Context, known, next string, gone []string, records map[string]string) (version string, err error) {
	if s.between {
		s.between, s.now.nested = false, true
		lost := [2]bool{s.loseAnswer, s.loseCall}
		s.now.tell("between {")
		s.now.event()
		s.now.tell("}")
		s.now.nested = false
		s.loseAnswer, s.loseCall = lost[0], lost[1]
	}
	if s.away {
		return "", window.ErrUnavailable
	}
	if s.readOnly {
		return "", fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrRefused)
	}
	if s.loseCall {
		return "", fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrUnknown)
	}
	version = s.hash["v"]
	if version == known {
		if version == "" || s.hash == nil {
			s.hash = make(map[string]string)
		}
		for _, id := range gone {
			delete(s.hash, id)
		}
		maps.Copy(s.hash, records)
		s.hash["v"], version = next, next
	}
	if s.loseAnswer {
		return "", fmt.Errorf("%w: %w", window.ErrUnavailable, window.ErrUnknown)
	}
	return version, nil
}

func (s *modelStore) ExchangeOrders(context.Context, map[string]string, map[string]string, time.Duration) (now time.Time, orders map[string]string, err error) {
	return now, nil, window.ErrUnavailable
}
