package banbook

import (
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// opened returns the book of one more configuration of a Caddy, which a reload replaces.
func opened(t *testing.T, s *server) *Book {
	t.Helper()
	m := memory.New(memory.Options{})
	t.Cleanup(func() { _ = m.Close() })
	return New(client{m, s}, engine.StoreID{Name: t.Name()})
}

func isStored(s *server, key string) bool {
	for _, c := range s.table.Load().All() {
		if c.Member == "z "+key && c.Record.Until > 0 {
			return true
		}
	}
	return false
}

// A reload that opens the store anew loses no strike: neither those that wait when the former configuration ends, nor those of
// requests that it answers after that, or after it was closed.
func TestReloadLosesNoStrike(t *testing.T) {
	s, _ := fleet(t, 0)
	former := opened(t, s)
	former.Begin()
	former.Zone("z").Strike("anna", &hour, false)
	next := opened(t, s)
	next.Begin()
	former.End()
	former.Zone("z").Strike("bert", &hour, false)
	former.Close()
	for _, key := range []string{"anna", "bert"} {
		if !isStored(s, key) {
			t.Errorf("%s is not banned in the store", key)
		}
	}
	former.Zone("z").Strike("carl", &hour, false)
	for _, key := range []string{"anna", "bert", "carl"} {
		eventually(t, "banned after the reload", func() bool { return isBanned(next, key) })
	}
	next.End()
	next.Close()
}

// Reloads while the store is away lose nothing of what happened in that time, and bring back what an empty store has lost.
func TestReloadWhileAway(t *testing.T) {
	s, _ := fleet(t, 0)
	former := opened(t, s)
	former.Begin()
	former.Zone("z").Strike("before", &hour, false)
	eventually(t, "banned", func() bool { return isBanned(former, "before") })
	s.away.Store(true)
	former.Zone("z").Strike("during", &hour, false)
	eventually(t, "banned here", func() bool { return isBanned(former, "during") })
	two := hour
	two.After = 2
	former.Zone("z").Strike("once", &two, false)
	for range 2 {
		next := opened(t, s)
		next.Begin()
		former.End()
		former.Zone("z").Strike("late", &hour, false)
		former.Close()
		for _, key := range []string{"before", "during", "late"} {
			if !isBanned(next, key) {
				t.Errorf("%s is not banned after a reload", key)
			}
		}
		former = next
	}
	s.flush()
	s.away.Store(false)
	for _, key := range []string{"before", "during", "late"} {
		eventually(t, key+" is banned in the store", func() bool { return isStored(s, key) })
	}
	eventually(t, "a strike that led to no ban is in the store", func() bool {
		return slices.ContainsFunc(s.table.Load().All(), func(c bans.Change) bool { return c.Member == "z once" && len(c.Record.Strikes) == 1 })
	})
	former.End()
	former.Close()
}
