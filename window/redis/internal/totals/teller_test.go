package totals

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// told is a call of Env.Tell.
type told struct {
	at       time.Duration
	keys     []string
	messages []Message
}

// teller is a table and what it has told, in virtual time.
type tellerOf struct {
	*Table
	mu    sync.Mutex // guards what follows
	calls []told
	reply func(key string) int64
	takes time.Duration // a call
}

// answers changes the server.
func (l *tellerOf) answers(reply int64, takes time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reply, l.takes = func(string) int64 { return reply }, takes
}

// newTeller has to be called in a bubble of synctest, and the table closed there.
func newTeller() *tellerOf {
	began := time.Now()
	l := &tellerOf{reply: func(string) int64 { return 0 }}
	l.Table = New(Env{
		Context: context.Background(),
		Now:     func() time.Duration { return time.Hour + time.Since(began) },
		Tell: func(_ context.Context, charges []window.Charge) (replies []int64) {
			l.mu.Lock()
			c, takes := told{at: time.Since(began)}, l.takes
			for i := range charges {
				m, _, _ := l.Total(&charges[i])
				c.keys, c.messages = append(c.keys, charges[i].Key), append(c.messages, m)
				replies = append(replies, l.reply(charges[i].Key))
			}
			l.calls = append(l.calls, c)
			l.mu.Unlock()
			time.Sleep(takes)
			return replies
		},
	})
	return l
}

func of(key string) *window.Charge {
	return &window.Charge{Zone: "z", Key: key, Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: 1_000, Window: 15 * time.Second}}}
}

// hold takes units as if the server had admitted them.
func (l *tellerOf) hold(key string, units int64) {
	c := of(key)
	c.Cost = units
	_, sent := l.Take(0, c)
	l.Answered(sent, Passed)
}

// after returns the calls after a number of them.
func (l *tellerOf) after(n int) []told {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls[n:])
}

// TestReleasesCoalesce holds that what is given back goes in one total of a counter in a gap, and with those of others.
func TestReleasesCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		defer l.Close()
		l.hold("k", 250)
		for range 200 {
			l.GiveBack(of("k"), 1, true)
			l.teller.mu.Lock()
			n := len(l.teller.queue)
			if l.teller.mu.Unlock(); n > 1 {
				t.Fatalf("the counter is queued %d times", n)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(Gap)
		if len(l.after(0)) < 4 || len(l.after(0)) > 6 {
			t.Errorf("%d totals of 200 releases in 200 ms: %v", len(l.after(0)), l.after(0))
		}
		for i := 1; i < len(l.after(0)); i++ {
			if gap := l.after(i)[0].at - l.after(i - 1)[0].at; gap < Gap {
				t.Errorf("totals %s apart", gap)
			}
		}
		if m := l.after(0)[len(l.after(0))-1].messages[0]; m.Given != 250 || m.Back != 200 {
			t.Errorf("the last total is %+v", m)
		}
		n := len(l.after(0))
		for i := range 500 {
			l.hold(fmt.Sprint(i), 1)
		}
		for i := range 500 {
			l.GiveBack(of(fmt.Sprint(i)), 1, true)
		}
		synctest.Wait()
		time.Sleep(2 * pace)
		all := 0
		for _, c := range l.after(n) {
			all += len(c.keys)
		}
		if calls := len(l.after(n)); calls > 2 || all != 500 {
			t.Errorf("500 releases are told in %d calls of %d totals", calls, all)
		}
		if _, counters := l.Held(); counters != 1 {
			t.Errorf("%d counters are remembered, want the one that is held", counters)
		}
	})
}

// TestBeats holds that a total is told at the beats after it has changed, then at each third of the lease, and some at
// each beat.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const counters = 300
		l := newTeller()
		defer l.Close()
		for i := range counters {
			l.hold(fmt.Sprint(i), 1)
		}
		time.Sleep(2*Beat + Beat/2)
		if n := len(l.after(0)); n != 2 || len(l.after(0)[0].keys) != counters || len(l.after(1)[0].keys) < witnesses {
			t.Errorf("%d calls at the first beats", n)
		}
		last := map[string]time.Duration{}
		n := 0
		for range 60 {
			time.Sleep(Beat)
			if len(l.after(2)) != n+1 {
				t.Fatalf("%d calls after %d beats", len(l.after(2)), n)
			}
			c := l.after(2 + n)[0]
			if len(c.keys) < witnesses {
				t.Errorf("%d witnesses", len(c.keys))
			}
			n++
			for _, key := range c.keys {
				if before, ok := last[key]; ok && c.at-before > 5*time.Second {
					t.Errorf("%s was silent for %s", key, c.at-before)
				}
				last[key] = c.at
			}
		}
		if len(last) != counters {
			t.Errorf("%d of %d counters were told", len(last), counters)
		}
		all := 0
		for _, c := range l.after(2) {
			all += len(c.keys)
		}
		if most := 60*witnesses + 7*counters; all > most {
			t.Errorf("%d totals in 30 s, want %d at most", all, most)
		}
	})
}

// TestLossIsHeard holds that all totals are told at once when the server has lost one.
func TestLossIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const counters = 3_000
		l := newTeller()
		defer l.Close()
		for i := range counters {
			l.hold(fmt.Sprint(i), 1)
		}
		time.Sleep(8*Beat + Beat/2)
		n := len(l.after(0))
		lost := true
		l.mu.Lock()
		l.reply = func(string) int64 {
			if lost {
				lost = false
				return 1
			}
			return 0
		}
		l.mu.Unlock()
		time.Sleep(Beat)
		keys := map[string]bool{}
		for _, c := range l.after(n + 1) {
			for _, key := range c.keys {
				keys[key] = true
			}
		}
		if len(keys) != counters || len(l.after(n)) != 1+(counters+together-1)/together {
			t.Errorf("%d of %d counters were told in %d calls", len(keys), counters, len(l.after(n)))
		}
	})
}

// TestAwayIsAskedOnce holds that a server that is away is asked once a beat, however many totals there are to tell, and
// hears of all of them a beat after it is back.
func TestAwayIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const counters = 3_000
		l := newTeller()
		defer l.Close()
		for i := range counters {
			l.hold(fmt.Sprint(i), 1)
		}
		time.Sleep(Beat + Beat/2)
		n := len(l.after(0))
		l.answers(-1, 100*time.Millisecond)
		for i := range 5_000 {
			l.Add(of("local"), 1)
			l.GiveBack(of("local"), 1, true)
			if i < counters/2 {
				l.GiveBack(of(fmt.Sprint(i)), 1, true)
			}
			time.Sleep(time.Millisecond)
		}
		if calls := len(l.after(n)); calls > 12 {
			t.Errorf("%d calls in 10 beats", calls)
		}
		l.answers(0, 0)
		n = len(l.after(0))
		time.Sleep(Beat + Gap)
		keys := map[string]bool{}
		for _, c := range l.after(n) {
			for _, key := range c.keys {
				keys[key] = true
			}
		}
		if len(keys) != counters+1 {
			t.Errorf("%d of %d totals are told a beat later", len(keys), counters+1)
		}
		if units, entries := l.Held(); units != counters/2 || entries != counters/2 {
			t.Errorf("%d units of %d counters are held, want %d", units, entries, counters/2)
		}
	})
}

// TestMemoryWhileAway holds that counters of which nothing is held are forgotten after a lease, above a number.
func TestMemoryWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		defer l.Close()
		l.answers(-1, 0)
		l.hold("held", 1)
		for i := range spare + 10_000 {
			c := of(fmt.Sprint(i))
			l.Add(c, 1)
			l.GiveBack(c, 1, true)
		}
		time.Sleep(14 * time.Second)
		if _, n := l.Held(); n != spare+10_001 {
			t.Errorf("%d counters before the lease has ended", n)
		}
		time.Sleep(2 * time.Second)
		if units, n := l.Held(); n > spare+1 || n < spare/2 || units != 1 {
			t.Errorf("%d units of %d counters after a lease", units, n)
		}
		l.answers(0, 0)
		time.Sleep(2 * Beat)
		if units, n := l.Held(); n != 1 || units != 1 {
			t.Errorf("%d units of %d counters in the end", units, n)
		}
	})
}

// TestClose holds that the server is told zeros, and that what comes later is harmless.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		l.hold("a", 3)
		l.hold("b", 1)
		_, late := l.Take(0, of("a"))
		l.Close()
		if len(l.after(0)) != 1 || len(l.after(0)[0].keys) != 2 {
			t.Fatalf("told %v", l.after(0))
		}
		for i, m := range l.after(0)[0].messages {
			if m.Given != m.Back {
				t.Errorf("%s: %+v", l.after(0)[0].keys[i], m)
			}
		}
		l.Answered(late, Denied)
		l.GiveBack(of("a"), 3, true)
		l.GiveBack(of("never"), 1, true)
		l.Add(of("a"), 1)
		l.Close()
	})
	synctest.Test(t, func(t *testing.T) { // that was never used
		l := newTeller()
		l.Close()
		if len(l.after(0)) > 0 {
			t.Errorf("told %v", l.after(0))
		}
	})
}

// TestDoubt holds that a total ends only the doubt that was there when it was sent.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		defer l.Close()
		l.hold("k", 2)
		const takes = 20 * time.Millisecond
		l.answers(0, takes)
		l.GiveBack(of("k"), 1, true)
		synctest.Wait() // the total is on its way
		_, sent := l.Take(0, of("k"))
		l.Answered(sent, Unknown)
		time.Sleep(takes + time.Millisecond)
		doubt := l.Doubt(of("k"))
		if doubt == nil {
			t.Fatal("an older total ends the doubt")
		}
		time.Sleep(Gap + takes)
		if !isOver(doubt) {
			t.Error("the next total does not end the doubt")
		}
	})
}

// isOver reports whether a doubt has ended.
func isOver(doubt <-chan struct{}) bool {
	select {
	case <-doubt:
		return true
	default:
		return false
	}
}

// TestTotalsAreHeard holds that a total says that the one before was counted, so that each witness hears of a loss.
func TestTotalsAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		defer l.Close()
		l.hold("k", 1)
		time.Sleep(Beat + Beat/2)
		last := l.after(0)[0].messages[0].Number
		if _, _, heard := l.Total(of("k")); heard != last {
			t.Errorf("message %d is heard of, want %d", heard, last)
		}
	})
}

// TestDoubtAfterLoss holds that takes wait for an exact total if the server has lost one while others are on their way: it
// may count what is not held any more.
func TestDoubtAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		defer l.Close()
		l.hold("k", 1)
		_, sent := l.Take(0, of("k"))
		l.answers(1, 0)
		time.Sleep(Beat + time.Millisecond)
		doubt := l.Doubt(of("k"))
		if doubt == nil {
			t.Fatal("takes do not wait")
		}
		l.answers(0, 0)
		l.Answered(sent, Denied)
		time.Sleep(Gap + pace)
		if !isOver(doubt) {
			t.Error("takes wait after an exact total")
		}
	})
}

// TestStaleIsToldAgain holds that a total that came after a later message is told again, a gap later.
func TestStaleIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTeller()
		defer l.Close()
		l.hold("k", 1)
		l.answers(Stale, 0)
		l.GiveBack(of("k"), 1, true)
		synctest.Wait()
		l.answers(0, 0)
		time.Sleep(Gap + pace)
		if calls := l.after(0); len(calls) != 2 || calls[1].at-calls[0].at != Gap {
			t.Errorf("told %v", calls)
		}
		if _, n := l.Held(); n != 0 {
			t.Errorf("%d counters are remembered", n)
		}
	})
}
