package windowtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// spread is how long a store may remember a denial, in ms.
const spread = 1_000

// Remembering is a store that remembers denials, held at each denial against one on
// the same counters that does not. It answers what that one says, so that it passes
// the suite. What is remembered may know less, but
//
//   - a request that is denied does not fit in truth;
//   - a limit that denies does so in truth, too, and its RetryAfter is no later;
//   - with one limit and a cost of 1, where no other request can be charged while the
//     denial is remembered, every field is true.
//
// A denial may be wrong for as long as it is remembered if the clock has stepped
// back since, or a counter has met other policies or options.
type Remembering struct {
	window.Store
	// Checked counts the denials that may have been remembered, Stale those of them
	// that did not know all, and Late those that were wrong for the reasons above.
	Checked, Stale, Late int

	t      testing.TB
	clock  *Clock
	asks   window.Store
	latest int64
	change int               // the number of steps back and of other policies so far
	added  int               // the number of times that units were added
	kinds  map[string]string // the policies and options that a counter met last
	denied map[string]*memory
}

// memory is what a store may have of a charge, which was denied again and again,
// until spread before until: it may be remembered in all of that time.
type memory struct {
	from, until   int64
	change, added int
	lowest        []int64 // limit of each policy under which it was denied
}

// lower notes limits under which a charge was denied.
func (m *memory) lower(policies []window.Policy) {
	if m.lowest == nil {
		m.lowest = make([]int64, len(policies))
		for i, p := range policies {
			m.lowest[i] = p.Limit
		}
	}
	for i, p := range policies {
		m.lowest[i] = min(m.lowest[i], p.Limit)
	}
}

// ends reports whether an admission under limits ends all denials: those under lower limits go on.
func (m *memory) ends(policies []window.Policy) bool {
	for i, p := range policies {
		if p.Limit > m.lowest[i] {
			return false
		}
	}
	return true
}

// NewRemembering returns a Remembering of two stores that live in the time of
// clock. It is not safe for concurrent use.
func NewRemembering(t testing.TB, clock *Clock, remembers, asks window.Store) *Remembering {
	return &Remembering{
		Store: remembers, t: t, clock: clock, asks: asks,
		kinds: make(map[string]string), denied: make(map[string]*memory),
	}
}

// Take implements window.Store.
func (r *Remembering) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	return r.TakeInto(ctx, nil, charges)
}

// TakeInto is Take with room for the decisions.
func (r *Remembering) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	got, err := engine.TakeInto(ctx, r.Store, room, charges)
	if err != nil {
		return nil, err
	}
	r.meet(charges)
	now := r.clock.Now()
	if window.Allowed(got) { // which a memory has nothing to do with
		for i := range charges {
			name := nameCharge(&charges[i])
			if d := r.denied[name]; d != nil && d.ends(charges[i].Policies) {
				delete(r.denied, name)
			}
		}
		return got, nil
	}
	want, err := r.asks.Peek(ctx, charges)
	wrong := func(what string) ([]window.Decision, error) {
		r.t.Errorf("at %d: Take(%v) = %+v; want %+v, %v: %s", now, charges, got, want, err, what)
		return got, err
	}
	if err != nil {
		return wrong("an outage")
	}
	d := r.remembered(charges, got, now)
	if d == nil {
		if !slices.Equal(got, want) {
			return wrong("this cannot be remembered")
		}
		return append(room[:0], want...), nil
	}
	if d.change != r.change {
		if window.Allowed(want) {
			r.Late++
		}
		return engine.TakeInto(ctx, r.asks, room, charges) // which may repair what lies in the future
	}
	r.Checked++
	if !slices.Equal(got, want) {
		r.Stale++
	}
	if problem := r.compare(charges, got, want, d); problem != "" {
		return wrong(problem)
	}
	return engine.TakeInto(ctx, r.asks, room, charges) // as above, for counters that were not asked about yet
}

// remembered returns what a store may have of a request, or nil if none of its charges was
// denied lately. It notes which of them are denied now.
func (r *Remembering) remembered(charges []window.Charge, got []window.Decision, now int64) *memory {
	var oldest *memory
	for i := range charges {
		name, own := nameCharge(&charges[i]), got[:len(charges[i].Policies)]
		got = got[len(own):]
		d := r.denied[name]
		if d != nil && (now < d.from || now >= d.until) {
			d = nil
		}
		if d != nil && (oldest == nil || d.change < oldest.change || d.change == oldest.change && d.added < oldest.added) {
			one := *d
			oldest = &one
		}
		switch {
		case window.Allowed(own):
		case d == nil:
			d = &memory{from: now, until: now + spread, change: r.change, added: r.added}
			r.denied[name] = d
			d.lower(charges[i].Policies)
		default:
			d.until = max(d.until, now+spread)
			d.lower(charges[i].Policies)
		}
	}
	return oldest
}

// nameCharge writes all of a charge that its denial depends on: a denial also holds under smaller limits,
// but for gcra, where a limit is a speed as well.
func nameCharge(c *window.Charge) string {
	policies := slices.Clone(c.Policies)
	if _, ok := c.Algorithm.(window.GCRA); !ok {
		for i := range policies {
			policies[i].Limit = 0
		}
	}
	return string(fmt.Appendf(engine.AppendKey(nil, c), "%#v %v %d %d ", c.Algorithm, policies, c.Cost, c.Pack))
}

// compare says what is wrong with a denial that may be remembered, if anything is.
func (r *Remembering) compare(charges []window.Charge, got, want []window.Decision, d *memory) string {
	if len(got) != len(want) {
		return "another number of decisions"
	}
	if window.Allowed(want) {
		return "it fits"
	}
	for i, g := range got {
		w := want[i]
		switch {
		case g.At != w.At:
			return "another time"
		case g.Limit != w.Limit || g.Remaining < 0 || g.Remaining > g.Limit:
			return "another limit"
		case g.Allowed != (g.RetryAfter == 0):
			return "a wait means a denial"
		case !g.Allowed && (g.RetryAfter < time.Millisecond || g.RetryAfter > w.RetryAfter):
			return "a limit has room sooner"
		case len(got) == 1 && charges[0].Cost == 1 && d.added == r.added && g.RetryAfter != window.Never && g != w:
			return "nothing can have changed"
		}
	}
	return ""
}

// meet notes whether the clock has stepped back, or a counter meets other policies
// or options.
func (r *Remembering) meet(charges []window.Charge) {
	now := r.clock.Now()
	if now < r.latest {
		r.change++
	}
	r.latest = now
	for i := range charges {
		c := &charges[i]
		name, kind := string(engine.AppendKey(nil, c)), fmt.Sprint(c.Algorithm, c.Policies)
		if old, met := r.kinds[name]; met && old != kind {
			r.change++
		}
		r.kinds[name] = kind
	}
}

// TakeBatch implements window.Store: each request is held against the truth of its
// own moment.
func (r *Remembering) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	return TakeEach(ctx, r.Take, requests)
}

// GiveBack implements window.Store.
func (r *Remembering) GiveBack(ctx context.Context, charge window.Charge, at, units int64) error {
	if err := r.Store.GiveBack(ctx, charge, at, units); err != nil {
		return err
	}
	r.meet([]window.Charge{charge})
	return nil
}

// ChargeMore implements window.Store.
func (r *Remembering) ChargeMore(ctx context.Context, charge window.Charge, units int64) error {
	if err := r.Store.ChargeMore(ctx, charge, units); err != nil {
		return err
	}
	r.meet([]window.Charge{charge})
	if units > 0 {
		r.added++
	}
	return nil
}
