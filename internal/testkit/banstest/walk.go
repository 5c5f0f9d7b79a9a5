// Package banstest makes random calls of a bans.Store, and compares what stores answer.
package banstest

import (
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
)

// Start is when a Walk starts: late enough that nothing expires on the clock of a server under test.
const Start int64 = 3_600_000_000_000

var (
	seed   = flag.Uint64("bans.seed", 1, "seed of the random walks; 0 takes one at random, and prints it")
	writes = flag.Int("bans.writes", 50_000, "how many writes the random walks have; make test-long has a million")
)

// longest is how many writes a walk has.
const longest = 10_000

// Walks returns walks with bans.writes writes together.
func Walks(t *testing.T) iter.Seq[*Walk] {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
		t.Logf("-bans.seed %d", first)
	}
	return func(yield func(*Walk) bool) {
		for n := 0; n*longest < *writes; n++ {
			w := newWalk(first + uint64(n))
			if w.writes = min(longest, *writes-n*longest); !yield(w) {
				return
			}
		}
	}
}

// Walk makes calls at random.
type Walk struct {
	Seed uint64
	Now  int64 // moves with each call, and at times back
	Most int   // how many records the store is to keep

	writes  int // how many are left
	random  *rand.Rand
	members int
	rules   []bans.Rule
	askers  []asker
	asks    int // which asker makes the call
	known   []bans.Change
	near    string // the member at an edge of which the call is, by a rule; "": of none
	edge    bans.Rule
}

// asker is a process that follows the changes.
type asker struct {
	known   int64
	witness string
}

func newWalk(seed uint64) *Walk {
	w := &Walk{Seed: seed, Now: Start, Most: bans.MostRecords, random: rand.New(rand.NewPCG(seed, 0)), askers: make([]asker, 3)}
	if w.members = 5 + int(seed%40); seed%2 == 0 {
		w.Most = 1 + w.random.IntN(w.members)
	}
	for range 4 {
		w.rules = append(w.rules, w.rule())
	}
	return w
}

// rule returns a rule that passes its check. Times are short multiples of a second, so that edges are met.
func (w *Walk) rule() bans.Rule {
	r := w.random
	rule := bans.Rule{
		Length: 1_000 * (1 + r.Int64N(10)), After: 1 + r.Int64N(4), In: 1_000 * (1 + r.Int64N(10)),
		Factor: []int64{1000, 1100, 1500, 2000, 1_000_000_000_000}[r.IntN(5)], Halve: 1_000 * (1 + r.Int64N(30)),
		Spread: []int64{0, 0, 7, 333, 1000}[r.IntN(5)], Pardon: 1_000 * r.Int64N(20),
	}
	rule.Max = rule.Length * (1 + r.Int64N(20))
	if r.IntN(20) == 0 {
		rule.Max = bans.Longest
	}
	return rule
}

// Calls returns the calls of the walk. Each is to be made at Now, and its answer given to Hear.
func (w *Walk) Calls() iter.Seq[bans.Ask] {
	return func(yield func(bans.Ask) bool) {
		for w.writes > 0 && yield(w.next()) {
		}
	}
}

func (w *Walk) next() bans.Ask {
	r := w.random
	w.near = ""
	switch r.IntN(200) {
	case 0:
		w.Now += 3_600_000
	case 1:
		w.Now = max(Start, w.Now-3_600_000)
	case 2:
		w.Now = max(Start, w.Now-r.Int64N(5_000))
	case 3:
		w.Now += r.Int64N(100_000)
	case 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19: // to an edge of what is known
		if len(w.known) > 0 {
			c := w.known[r.IntN(len(w.known))]
			k, rule := c.Record, w.rules[r.IntN(len(w.rules))]
			w.near, w.edge = c.Member, rule
			w.Now = max(Start, []int64{
				k.Until, 2*k.Began - k.Until, k.Last + 1_000, k.Forget, k.Lifted + rule.Pardon, k.Last + rule.In, max(k.Until, k.Last) + rule.Halve,
			}[r.IntN(7)]-r.Int64N(2))
		}
	default:
		w.Now += []int64{0, 1, 499, 500, 1_000, 1_001, r.Int64N(3_000)}[r.IntN(7)]
	}
	w.asks = r.IntN(len(w.askers))
	a := w.askers[w.asks]
	if r.IntN(200) == 0 {
		a = asker{r.Int64N(1+1_000*r.Int64N(2)) + r.Int64N(2), w.member()}
	}
	ask := bans.Ask{Known: a.known, Witness: a.witness}
	for range r.IntN(4) * r.IntN(12) {
		ask.Writes = append(ask.Writes, w.write())
	}
	w.writes -= len(ask.Writes)
	return ask
}

// member returns one that others share with a low number more often.
func (w *Walk) member() string {
	if w.near != "" && w.random.IntN(3) == 0 {
		return w.near
	}
	n := w.members
	if w.random.IntN(2) == 0 {
		n = min(n, 5)
	}
	return fmt.Sprintf("key api %d", w.random.IntN(n))
}

func (w *Walk) write() bans.Write {
	r := w.random
	one := bans.Write{Op: bans.Strike, Member: w.member()}
	if r.IntN(2) == 0 {
		one.About = fmt.Sprintf(`{"by":"%d|"}`, r.IntN(100))
	}
	if r.IntN(20) == 0 {
		one.Former = w.member()
	}
	switch n := r.IntN(40); {
	case n < 32:
		one.Rule, one.Draw = w.rules[r.IntN(len(w.rules))], r.Int64N(1000)
		if one.Member == w.near {
			one.Rule = w.edge
		}
	case n < 34:
		one.Op, one.For, one.Keep = bans.Set, 1_000*r.Int64N(100), 1_000*r.Int64N(100)
	case n < 37:
		one.Op = bans.Lift
	default:
		one.Op, one.Record = bans.Merge, w.record()
	}
	return one
}

// record returns one of a store's changes, or one that no store has made.
func (w *Walk) record() bans.Record {
	r := w.random
	if len(w.known) > 0 && r.IntN(2) == 0 {
		return w.known[r.IntN(len(w.known))].Record
	}
	near := func() int64 { return (w.Now + 1_000*(r.Int64N(40)-30)) * min(1, r.Int64N(4)) }
	one := bans.Record{Change: r.Int64N(100), Until: near(), Began: near(), Level: r.Int64N(400), Last: near(), Lifted: near() * r.Int64N(2), Forget: near() + 20_000}
	for range r.IntN(3) * r.IntN(100) {
		one.Strikes = append(one.Strikes, w.Now-500*r.Int64N(500)+r.Int64N(2))
	}
	slices.Sort(one.Strikes)
	one.Strikes = one.Strikes[max(0, len(one.Strikes)-bans.MostStrikes):]
	return one
}

// Hear tells the walk what the store answered to the last call. Askers follow as they should.
func (w *Walk) Hear(answer bans.Answer) {
	a := &w.askers[w.asks]
	a.known = answer.Change
	if n := len(answer.Changes); n > 0 {
		a.witness, w.known = answer.Changes[n-1].Member, answer.Changes
	}
}

// Text returns what a store answered, to compare.
func Text(a bans.Answer) string {
	text := fmt.Sprintf("now %d, change %d, more %v, lost %v, done %v", a.Now, a.Change, a.More, a.Lost, a.Done)
	for _, c := range a.Changes {
		text += fmt.Sprintf("\n%s: %s, %d left", c.Member, c.Record.String(), c.Record.Left(a.Now))
	}
	return text
}

// Texts returns the texts of all records of a model.
func Texts(m *Model) map[string]string {
	texts := make(map[string]string)
	for member, r := range m.Records {
		texts[member] = r.String()
	}
	return texts
}
