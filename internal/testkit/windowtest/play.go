package windowtest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Op is a method of window.Store, or one of two.
type Op string

// What a Call names. Settle gives back for a Delta below 0, and charges more for one above.
const (
	Take      Op = "Take"
	Peek      Op = "Peek"
	TakeBatch Op = "TakeBatch"
	Settle    Op = "Settle"
	Reset     Op = "Reset"
)

// Call is a call of a store at a time.
type Call struct {
	Op Op
	// Now is the time of the store.
	Now int64
	// Requests are those of TakeBatch. The other methods have one, and Settle and Reset one charge.
	Requests [][]window.Charge
	// At and Delta are for Settle.
	At, Delta int64
}

// on makes the call. It does not set the clock.
func (c *Call) on(ctx context.Context, s window.Store) []window.Result {
	one := func(ds []window.Decision, err error) []window.Result {
		return []window.Result{{Decisions: ds, Err: err}}
	}
	switch charges := c.Requests[0]; c.Op {
	case Take:
		return one(s.Take(ctx, charges))
	case Peek:
		return one(s.Peek(ctx, charges))
	case TakeBatch:
		return s.TakeBatch(ctx, c.Requests)
	case Settle:
		return one(nil, engine.Settle(ctx, s, charges[0], c.At, c.Delta))
	default:
		return one(nil, s.Reset(ctx, charges[0]))
	}
}

func (c *Call) String() string {
	if c.Op == Settle {
		return fmt.Sprintf("at %d: Settle(%+v, %d, %d)", c.Now, c.Requests[0][0], c.At, c.Delta)
	}
	return fmt.Sprintf("at %d: %s(%+v)", c.Now, c.Op, c.Requests)
}

// agree reports whether the answers to a call are those of the model, which has no errors.
func agree(got, want []window.Result) bool {
	return slices.EqualFunc(got, want, func(g, w window.Result) bool {
		return g.Err == nil && w.Err == nil && slices.Equal(g.Decisions, w.Decisions)
	})
}

// Player is a store that makes many calls in one round trip.
type Player interface {
	window.Store
	// Play makes the calls one after the other, each at its own time, to which it sets clock. It
	// returns the answers to each.
	Play(ctx context.Context, clock *Clock, calls []Call) [][]window.Result
}

// atOnce is how many calls a Player makes in one round trip.
const atOnce = 1_000

// twin is a store that answers as a model does, and compares each answer with that of another
// store. A Player is asked later, about many calls at once: at the latest by flush.
//
// That is as good as asking it at once. A call depends on the answers to those before it, and
// these are the model's; the first that differs fails the test.
type twin struct {
	t               *testing.T
	clock           *Clock
	name            string // of what follows, in messages
	openModel, open Open
	model, other    window.Store
	player          Player // other; nil for a store that is asked at once

	history []Call // what another pair of stores has to be asked for the same answers
	played  int    // how many of these the player has answered
	answers [][]window.Result
}

func newTwin(t *testing.T, clock *Clock, openModel, open Open) *twin {
	w := &twin{t: t, clock: clock, openModel: openModel, open: open, model: openModel(t, clock), other: open(t, clock)}
	w.player, _ = w.other.(Player)
	return w
}

// begin forgets the history: what follows is about other counters.
func (w *twin) begin(name string) {
	w.flush()
	w.name, w.history, w.played = name, nil, 0
}

// do makes a call, and returns the answers of the model.
func (w *twin) do(c Call) []window.Result {
	w.t.Helper()
	c.Now = w.clock.Now()
	want := c.on(w.t.Context(), w.model)
	if w.player == nil {
		w.history = append(w.history, c)
		if got := c.on(w.t.Context(), w.other); !agree(got, want) {
			w.t.Fatalf("%s, step %d, %s", w.name, len(w.history)-1, w.difference(&c, got, want))
		}
		return want
	}
	w.history, w.answers = append(w.history, c.clone()), append(w.answers, cloneResults(want))
	if len(w.answers) == atOnce {
		w.flush()
	}
	return want
}

// clone returns a call whose charges the caller of the first does not change later.
func (c Call) clone() Call {
	c.Requests = slices.Clone(c.Requests)
	for i, charges := range c.Requests {
		charges = slices.Clone(charges)
		for j := range charges {
			charges[j].Policies = slices.Clone(charges[j].Policies)
			charges[j].Fields = slices.Clone(charges[j].Fields)
		}
		c.Requests[i] = charges
	}
	return c
}

func cloneResults(all []window.Result) []window.Result {
	all = slices.Clone(all)
	for i := range all {
		all[i].Decisions = slices.Clone(all[i].Decisions)
	}
	return all
}

// flush makes the player answer the calls it was not asked yet.
func (w *twin) flush() {
	w.t.Helper()
	first, all := w.played, w.answers
	if len(all) == 0 {
		return
	}
	w.played, w.answers = len(w.history), nil
	now, calls := w.clock.Now(), w.history[first:]
	played := w.player.Play(context.WithoutCancel(w.t.Context()), w.clock, calls)
	w.clock.Set(now)
	for i, want := range all {
		if got := played[i]; !agree(got, want) {
			w.t.Fatalf("%s, step %d of many in one round trip, %s\n%s", w.name, first+i,
				w.difference(&calls[i], got, want), w.replay(first+i))
		}
	}
}

func (w *twin) difference(c *Call, got, want []window.Result) string {
	return fmt.Sprintf("%s:\n%s: %+v\n%s: %+v", c, w.model, want, w.other, got)
}

// replay makes the calls up to a step again, one after the other, on new stores. It says which
// is the first whose answers differ.
func (w *twin) replay(last int) string {
	a, b := w.openModel(w.t, w.clock), w.open(w.t, w.clock)
	for i := range w.history[:last+1] {
		c := &w.history[i]
		w.clock.Set(c.Now)
		ctx := context.WithoutCancel(w.t.Context())
		if want, got := c.on(ctx, a), c.on(ctx, b); !agree(got, want) {
			return fmt.Sprintf("Step by step, step %d differs, %s", i, w.difference(c, got, want))
		}
	}
	return "Step by step, no answer differs."
}

// recorder is a twin as a store.
type recorder struct {
	window.Store // the model
	twin         *twin
}

// Recorded returns an Open of stores that answer as those of openModel do. What they are asked is
// asked of a Player in few round trips, by the end of the test at the latest: every field of
// every answer has to be the same.
func Recorded(openModel, openPlayer Open) Open {
	return func(t *testing.T, clock *Clock) window.Store {
		w := newTwin(t, clock, openModel, openPlayer)
		w.name = t.Name()
		t.Cleanup(w.flush)
		return recorder{w.model, w}
	}
}

// Take implements window.Store.
func (r recorder) Take(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
	got := r.twin.do(Call{Op: Take, Requests: [][]window.Charge{charges}})[0]
	return got.Decisions, got.Err
}

// TakeBatch implements window.Store.
func (r recorder) TakeBatch(_ context.Context, requests [][]window.Charge) []window.Result {
	return r.twin.do(Call{Op: TakeBatch, Requests: requests})
}

// Peek implements window.Store.
func (r recorder) Peek(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
	got := r.twin.do(Call{Op: Peek, Requests: [][]window.Charge{charges}})[0]
	return got.Decisions, got.Err
}

// GiveBack implements window.Store.
func (r recorder) GiveBack(_ context.Context, charge window.Charge, at, units int64) error {
	return r.settle(charge, at, -units)
}

// ChargeMore implements window.Store.
func (r recorder) ChargeMore(_ context.Context, charge window.Charge, units int64) error {
	return r.settle(charge, 0, units)
}

func (r recorder) settle(charge window.Charge, at, delta int64) error {
	return r.twin.do(Call{Op: Settle, Requests: [][]window.Charge{{charge}}, At: at, Delta: delta})[0].Err
}

// Reset implements window.Store.
func (r recorder) Reset(_ context.Context, charge window.Charge) error {
	return r.twin.do(Call{Op: Reset, Requests: [][]window.Charge{{charge}}})[0].Err
}
