package bans_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
)

const start = int64(1_800_000_000_000)

// table is a Table and its clock.
type table struct {
	*bans.Table
	t   *testing.T
	now int64
}

func newTable(t *testing.T) *table {
	tb := &table{t: t, now: start}
	tb.Table = bans.NewTable(func() int64 { return tb.now })
	return tb
}

func (tb *table) ask(known int64, witness string, writes ...bans.Write) bans.Answer {
	tb.t.Helper()
	a, err := tb.ExchangeBans(tb.t.Context(), bans.Ask{Known: known, Witness: witness, Writes: writes})
	if err != nil {
		tb.t.Fatal(err)
	}
	return a
}

func set(member string, length, keep int64) bans.Write {
	return bans.Write{Op: bans.Set, Member: member, For: length, Keep: keep, About: "x"}
}

// The first to be forgotten go first when there are too many, and of two with one time the first by its name.
func TestEviction(t *testing.T) {
	tb := newTable(t)
	tb.Most(3)
	tb.ask(0, "", set("k b", 5_000, 0), set("k a", 5_000, 0), set("k c", 1_000, 4_001), set("k d", 9_000, 0))
	if got := slices.Sorted(maps.Keys(tb.Texts())); fmt.Sprint(got) != "[k b k c k d]" {
		t.Errorf("%q are left, want all but k a", got)
	}
	tb.now += 5_000
	tb.ask(0, "", bans.Write{Op: bans.Lift, Member: "k z"})
	if got := slices.Sorted(maps.Keys(tb.Texts())); fmt.Sprint(got) != "[k c k d]" {
		t.Errorf("%q are left, want those that are of use", got)
	}
}

// Changes come in pages, each member once, with what it is now.
func TestChanges(t *testing.T) {
	tb := newTable(t)
	const n = 2*bans.MostChanges + 10
	for i := range n {
		tb.ask(0, "", set(fmt.Sprintf("k %d", i), 60_000, 0))
	}
	tb.ask(0, "", set("k 0", 90_000, 0), bans.Write{Op: bans.Lift, Member: "k 1"}, bans.Write{Op: bans.Strike, Member: "k 2"})
	seen, pages, a := map[string]int64{}, 0, bans.Answer{More: true}
	for witness := ""; a.More; pages++ {
		if a = tb.ask(a.Change, witness); a.Lost {
			t.Fatal("lost")
		}
		for i, c := range a.Changes {
			if _, twice := seen[c.Member]; twice || i > 0 && c.Record.Change <= a.Changes[i-1].Record.Change {
				t.Errorf("%s twice, or out of order", c.Member)
			}
			seen[c.Member], witness = c.Record.Left(tb.now), c.Member
		}
	}
	if len(seen) != n || pages != 3 || a.Change != n+2 || seen["k 0"] != 90_000 || seen["k 1"] != 0 || seen["k 2"] != 60_000 {
		t.Errorf("%d members in %d pages up to change %d; %d, %d and %d left", len(seen), pages, a.Change, seen["k 0"], seen["k 1"], seen["k 2"])
	}
	if a := tb.ask(n+2-bans.MostChanges, fmt.Sprintf("k %d", n+1-bans.MostChanges)); len(a.Changes) != bans.MostChanges || a.More || a.Lost {
		t.Errorf("%d changes, more %v, lost %v", len(a.Changes), a.More, a.Lost)
	}
	if a = tb.ask(a.Change, "k 1"); a.Changes != nil || a.More || a.Lost || a.Change != n+2 {
		t.Errorf("%+v, want nothing new", a)
	}
}

// A change that the store does not know is lost: the store has begun anew, or is as it was before.
func TestLost(t *testing.T) {
	tb := newTable(t)
	tb.ask(0, "", set("k a", 60_000, 0), set("k b", 60_000, 0), set("k a", 70_000, 0))
	for _, test := range []struct {
		known   int64
		witness string
		lost    bool
		changes int
	}{
		{0, "", false, 2}, {2, "k b", false, 1}, {3, "k a", false, 0}, {4, "k a", true, 2}, {3, "k b", true, 2}, {1, "k c", true, 2}, {1, "", true, 2},
	} {
		a := tb.ask(test.known, test.witness)
		if a.Lost != test.lost || len(a.Changes) != test.changes || a.Change != 3 {
			t.Errorf("%d of %q: %+v", test.known, test.witness, a)
		}
	}
	a := newTable(t).ask(3, "k a", bans.Write{Op: bans.Lift, Member: "k a"})
	if !a.Lost || a.Change != 0 || a.Changes != nil || fmt.Sprint(a.Done) != "[false]" {
		t.Errorf("an empty table answers %+v", a)
	}
}

// A member under a new name keeps its record, once.
func TestFormer(t *testing.T) {
	tb := newTable(t)
	tb.ask(0, "", set("k old", 60_000, 0), set("k other", 60_000, 0))
	for _, w := range []bans.Write{
		{Op: bans.Strike, Member: "k new", Former: "k old"},
		{Op: bans.Strike, Member: "k new", Former: "k old"},
		{Op: bans.Strike, Member: "k new", Former: "k other"},
	} {
		if a := tb.ask(2, "k other", w); a.Done[0] || a.Change != 3 || len(a.Changes) != 1 || a.Changes[0].Member != "k new" || a.Changes[0].Record.Left(tb.now) != 60_000 {
			t.Errorf("%+v", a)
		}
	}
	if got := slices.Sorted(maps.Keys(tb.Texts())); fmt.Sprint(got) != "[k new k other]" {
		t.Errorf("members %q", got)
	}
}

// What an Answer holds stays as it was when the table goes on.
func TestAnswerIsACopy(t *testing.T) {
	tb := newTable(t)
	strike := bans.Write{Op: bans.Strike, Member: "k a", Rule: bans.Rule{Length: 1_000, After: 9, In: 60_000, Factor: 1000, Max: 1_000, Halve: 1_000}}
	tb.ask(0, "", set("k a", 1_000, 60_000))
	tb.now += 1_000
	for range 3 {
		tb.ask(0, "", strike)
		tb.now += 1_000
	}
	a := tb.ask(0, "")
	before := fmt.Sprint(a)
	tb.now += 58_000
	tb.ask(0, "", strike)
	if fmt.Sprint(a) != before {
		t.Errorf("%v was %s", a, before)
	}
}

// The clock of the store steps an hour back and forth, for as long as a key is denied. Bans end all the same: none is told
// to last longer than its rule says, and the key is banned again after each.
func TestClockSteps(t *testing.T) {
	tb := newTable(t)
	rule := bans.Rule{Length: 60_000, After: 2, In: 30_000, Factor: 1500, Max: 300_000, Halve: 600_000, Spread: 100}
	steps, begun, end, real := []int64{-3_600_000, 3_600_000, 3_600_000, -3_600_000}, 0, int64(0), start
	for i := range int64(100_000) { // seconds
		real += 1_000
		tb.now += 1_000
		if i%1_500 == 1_499 {
			tb.now += steps[i/1_500%4]
		}
		if real < end { // a process that knows of a ban sends no strikes
			continue
		}
		a := tb.ask(0, "", bans.Write{Op: bans.Strike, Member: "k a", Rule: rule, Draw: 999})
		for _, c := range a.Changes {
			left := c.Record.Left(tb.now)
			if left > 330_000 {
				t.Fatalf("second %d: %+v lasts for %d", i, c.Record, left)
			}
			if a.Done[0] {
				begun, end = begun+1, real+left
			}
		}
		if a.Done[0] == (end <= real) {
			t.Fatalf("second %d: %+v begins, and is over", i, a)
		}
		if real-end > 700_000 && begun > 0 {
			t.Fatalf("second %d: no ban for %d ms", i, real-end)
		}
	}
	if begun < 200 {
		t.Errorf("%d bans in a day, want one after the other", begun)
	}
}

// TestFloodOfStrikes has a million keys denied once each. The memory is bounded, and who was banned several times still is.
func TestFloodOfStrikes(t *testing.T) {
	tb := newTable(t)
	rule := bans.Rule{Length: 600_000, After: 3, In: 60_000, Factor: 2000, Max: 86_400_000, Halve: 3_600_000}
	worst := bans.Write{Op: bans.Strike, Member: "k worst", Rule: rule}
	a := bans.Answer{}
	for range 3 {
		for a = (bans.Answer{Done: []bool{false}}); !a.Done[0]; tb.now += 1_000 {
			a = tb.ask(0, "", worst)
		}
		tb.now = a.Changes[0].Record.Until
	}
	tb.now -= 2_000_000 // in the third ban, of 2,400,000
	writes := make([]bans.Write, 100)
	for i := range 1_000_000 / len(writes) {
		for k := range writes {
			writes[k] = bans.Write{Op: bans.Strike, Member: fmt.Sprintf("k %d", i*len(writes)+k), Rule: rule}
		}
		tb.now++
		tb.ask(0, "", writes...)
	}
	if a = tb.ask(0, ""); len(a.Changes) != 1 || a.Changes[0].Member != "k worst" || a.Changes[0].Record.Left(tb.now) == 0 {
		t.Errorf("%+v, want the worst to be banned", a)
	}
	if n := len(tb.Texts()); n != bans.MostRecords || tb.Room() > 4*bans.MostRecords {
		t.Errorf("%d records, and room for %d changes", n, tb.Room())
	}
}

// Bans of one key after the other take no more room than the last.
func TestManyChanges(t *testing.T) {
	tb := newTable(t)
	const n = 100_000
	a := bans.Answer{}
	for range n {
		a = tb.ask(a.Change, "k a", set("k a", 60_000, 0))
	}
	if a.Lost || len(a.Changes) != 1 || a.Change != n || tb.Room() > 4*bans.MostChanges {
		t.Errorf("%+v, and room for %d changes", a, tb.Room())
	}
}

// One of several strikes that come at once bans.
func TestTogether(t *testing.T) {
	tb := newTable(t)
	rule := bans.Rule{Length: 60_000, After: 1, In: 1_000, Factor: 2000, Max: 60_000, Halve: 1_000}
	var begun atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 500 {
				a := tb.ask(0, "", bans.Write{Op: bans.Strike, Member: fmt.Sprintf("k %d", n), Rule: rule}, bans.Write{Op: bans.Lift, Member: fmt.Sprintf("of %d", i)})
				if a.Done[0] {
					begun.Add(1)
				}
			}
		})
	}
	group.Wait()
	if begun.Load() != 500 {
		t.Errorf("%d bans of 500 keys", begun.Load())
	}
}
