package banbook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a store that several Caddys share, and that can be away.
type server struct {
	table atomic.Pointer[bans.Table]
	away  atomic.Bool
	calls atomic.Int64
}

func (s *server) flush() {
	s.table.Store(bans.NewTable(func() int64 { return time.Now().UnixMilli() }))
}

type client struct {
	window.Store
	*server
}

func (c client) String() string { return "server" }

func (c client) ExchangeBans(ctx context.Context, ask bans.Ask) (bans.Answer, error) {
	c.calls.Add(1)
	if c.away.Load() {
		return bans.Answer{}, errors.New("away")
	}
	return c.table.Load().ExchangeBans(ctx, ask)
}

// fleet returns the books of n Caddys with one server.
func fleet(t *testing.T, n int) (*server, []*Book) {
	t.Helper()
	s := new(server)
	s.flush()
	var all []*Book
	for i := range n {
		m := memory.New(memory.Options{})
		b := New(client{m, s}, engine.StoreID{Name: fmt.Sprint(i)})
		b.Begin()
		t.Cleanup(func() {
			b.End()
			b.Close()
			_ = m.Close()
		})
		all = append(all, b)
	}
	return s, all
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("not in time: %s", what)
		}
	}
}

var hour = bans.Rule{Length: 3_600_000, After: 1, In: 60_000, Factor: 2000, Max: 7_200_000, Halve: 3_600_000}

func isBanned(b *Book, key string) bool {
	_, ok := b.Zone("z").Ban(key, false)
	return ok
}

// A ban of one Caddy is in force in all, and so is its end.
func TestFleet(t *testing.T) {
	_, all := fleet(t, 3)
	all[0].Zone("z").Strike("anna", &hour, false)
	all[0].Zone("z").Strike("bert", &hour, true)
	for _, b := range all {
		eventually(t, "banned everywhere", func() bool { return isBanned(b, "anna") })
		eventually(t, "banned in shadow everywhere", func() bool { _, ok := b.Zone("z").Ban("bert", true); return ok })
		if isBanned(b, "bert") || isBanned(b, "carl") {
			t.Error("a ban in shadow denies, or one of another key")
		}
	}
	list := all[2].List()
	if len(list) != 2 || list[0].Zone != "z" || list[0].Level != 1 {
		t.Fatalf("list %+v", list)
	}
	n, err := all[1].Lift(t.Context(), []Entry{*entryOf(list, "anna")}, control.Why{By: "ops"})
	if n != 1 || err != nil {
		t.Fatalf("%d lifted, %v", n, err)
	}
	for _, b := range all {
		eventually(t, "lifted everywhere", func() bool { return !isBanned(b, "anna") })
	}
}

func entryOf(list []Entry, key string) *Entry {
	for i := range list {
		if k := list[i].Key; k != nil && *k == key {
			return &list[i]
		}
	}
	return nil
}

// While the store is away, bans stay, and new ones hold here. The store gets them when it is back.
func TestAway(t *testing.T) {
	s, all := fleet(t, 2)
	all[0].Zone("z").Strike("anna", &hour, false)
	eventually(t, "banned everywhere", func() bool { return isBanned(all[1], "anna") })
	s.away.Store(true)
	all[1].Zone("z").Strike("bert", &hour, false)
	eventually(t, "banned here", func() bool { return isBanned(all[1], "bert") })
	if isBanned(all[0], "bert") || !isBanned(all[0], "anna") {
		t.Error("the other Caddy knows what it cannot know, or does not know what it did")
	}
	s.away.Store(false)
	eventually(t, "booked", func() bool { return isBanned(all[0], "bert") })
}

// What the store has lost, whoever knows it brings back, but for what was lifted.
func TestLost(t *testing.T) {
	s, all := fleet(t, 2)
	for _, key := range []string{"anna", "bert"} {
		all[0].Zone("z").Strike(key, &hour, false)
	}
	eventually(t, "banned everywhere", func() bool { return isBanned(all[1], "anna") && isBanned(all[1], "bert") })
	older := s.table.Load()
	copied := bans.NewTable(func() int64 { return time.Now().UnixMilli() })
	for _, c := range older.All() {
		_, _ = copied.ExchangeBans(t.Context(), bans.Ask{Writes: []bans.Write{{Op: bans.Merge, Member: c.Member, Record: c.Record}}})
	}
	if n, err := all[0].Lift(t.Context(), []Entry{*entryOf(all[0].List(), "anna")}, control.Why{}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	eventually(t, "lifted", func() bool { return !isBanned(all[1], "anna") })
	s.table.Store(copied)
	eventually(t, "lifted again", func() bool {
		a, _ := copied.ExchangeBans(t.Context(), bans.Ask{})
		for _, c := range a.Changes {
			if c.Member == "z anna" {
				return c.Record.Left(a.Now) == 0
			}
		}
		return false
	})
	s.flush()
	fresh := New(client{nil, s}, engine.StoreID{Name: "fresh"})
	defer fresh.Close()
	eventually(t, "written again", func() bool { return fresh.Look(t.Context()) == nil && isBanned(fresh, "bert") })
	if isBanned(fresh, "anna") {
		t.Error("what was lifted is back")
	}
}

// A ban of a network is in force for all of its addresses, and for no others.
func TestNetwork(t *testing.T) {
	_, all := fleet(t, 2)
	if err := all[0].SetNetwork(t.Context(), "z", "192.0.2.0/24", time.Hour, 0, control.Why{By: "ops", Reason: "a crawl"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "banned everywhere", func() bool { return isBanned(all[1], "192.0.2.7") })
	if isBanned(all[1], "192.0.3.7") || isBanned(all[1], "anna") {
		t.Error("others are banned")
	}
	e := all[1].List()[0]
	if e.CIDR != "192.0.2.0/24" || e.By != "ops" || e.Reason != "a crawl" {
		t.Errorf("%+v", e)
	}
	if n, err := all[1].Lift(t.Context(), []Entry{e}, control.Why{}); n != 1 || err != nil || isBanned(all[1], "192.0.2.7") {
		t.Error(n, err)
	}
}

// A key that is denied all the time strikes once a second, and a banned one asks no store.
func TestStrikesAreFew(t *testing.T) {
	s, all := fleet(t, 1)
	rule := hour
	rule.After = 100
	before := s.calls.Load()
	for range 10_000 {
		all[0].Zone("z").Strike("anna", &rule, false)
	}
	if n := len(s.table.Load().All()); n > 1 {
		t.Errorf("%d records", n)
	}
	if n := s.calls.Load() - before; n > 20 {
		t.Errorf("%d calls", n)
	}
}

// In memory, a ban is in force at once, and ends on the millisecond.
func TestMemory(t *testing.T) {
	s := &stepped{Store: memory.New(memory.Options{})}
	defer s.Close()
	s.now.Store(1_800_000_000_000)
	b := New(s, engine.StoreID{})
	defer b.Close()
	b.Begin()
	defer b.End()
	b.Zone("z").Strike("anna", &hour, false)
	for range 3_600 {
		if ban, ok := b.Zone("z").Ban("anna", false); !ok || ban.Left != time.Duration(1_800_003_600_000-s.now.Load())*time.Millisecond {
			t.Fatalf("%+v, %v at %d", ban, ok, s.now.Load())
		}
		b.Zone("z").Strike("anna", &hour, false)
		s.now.Add(1_000)
	}
	if isBanned(b, "anna") {
		t.Error("the ban does not end")
	}
	s.now.Add(-1)
	if !isBanned(b, "anna") {
		t.Error("the ban ends early")
	}
}

type stepped struct {
	*memory.Store
	now atomic.Int64
}

func (s *stepped) Step(now int64) { s.now.Store(now) }
func (s *stepped) Time() int64    { return s.now.Load() }

// A zone without bans costs a request nothing, and a ban no memory.
func TestBanAllocates(t *testing.T) {
	_, all := fleet(t, 1)
	z := all[0].Zone("z")
	z.Strike("anna", &hour, false)
	eventually(t, "banned", func() bool { return isBanned(all[0], "anna") })
	if n := testing.AllocsPerRun(1000, func() { z.Ban("anna", false); z.Ban("192.0.2.1", false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
