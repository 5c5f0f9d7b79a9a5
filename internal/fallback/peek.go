package fallback

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Peek returns what Take, and with local then TakeLocal, would answer now, and what decides. It books what is owed on
// the counters, as Take would, and spends nothing. If local counts decide, cause is the error of the store.
func (g *Guard) Peek(ctx context.Context, charges []window.Charge, local, share bool) (ds []window.Decision, by engine.Source, cause, err error) {
	ds, by, err = g.peekStore(ctx, charges)
	if err == nil || !local || !IsOutage(ctx, err) {
		return ds, by, nil, err
	}
	cause = err
	ds, err = g.peekLocal(charges, share)
	return ds, engine.SourceLocal, cause, err
}

func (g *Guard) peekStore(ctx context.Context, charges []window.Charge) ([]window.Decision, engine.Source, error) {
	if err := engine.CheckCharges(charges); err != nil {
		return nil, engine.SourceStore, err
	}
	if !g.settled() && !g.breaker.Open(charges...) {
		if _, err := g.repayAndTake(ctx, looking(charges), nil); err != nil {
			return nil, engine.SourceStore, err
		}
	}
	if f, ok := g.store.(engine.LocalAnswerer); ok && !g.breaker.Open(charges...) {
		if ds, by := f.AnswerLocally(charges); ds != nil {
			return ds, by, nil
		}
	}
	ds, err := g.breaker.Peek(ctx, charges)
	return ds, engine.SourceStore, err
}

// AnswerLocally returns what would be decided on charges now, if the store is not to be asked for that; else nil. local says that
// the counts of this process decide while the store is away.
func (g *Guard) AnswerLocally(charges []window.Charge, local, share bool) []window.Decision {
	var ds []window.Decision
	if !g.breaker.Open(charges...) {
		if f, ok := g.store.(engine.LocalAnswerer); ok {
			ds, _ = f.AnswerLocally(charges)
		}
	} else if local {
		ds, _ = g.peekLocal(charges, share) // nil with an error, which Take returns, too
	}
	return ds
}

// Foresee returns what would decide on charges now if the store is there: its server, or what is known here of it.
func (g *Guard) Foresee(charges []window.Charge) (by engine.Source) {
	if f, ok := g.store.(engine.LocalAnswerer); ok && !g.breaker.Open(charges...) {
		_, by = f.AnswerLocally(charges)
	}
	return by
}

// looking returns the charges without their costs.
func looking(charges []window.Charge) []window.Charge {
	look := make([]window.Charge, len(charges))
	for i := range charges {
		look[i] = charges[i]
		look[i].Cost = 0
	}
	return look
}

// peekLocal returns what TakeLocal would answer now, but spends nothing, and does not begin to
// count the units that the store was known to have.
func (g *Guard) peekLocal(charges []window.Charge, share bool) ([]window.Decision, error) {
	if err := engine.CheckCharges(charges); err != nil {
		return nil, err
	}
	n := int64(1)
	if share {
		n = g.presence.size()
	}
	var all []window.Decision
	for i := range charges {
		ds, err := g.peekOne(&charges[i], n)
		if err != nil {
			return nil, err
		}
		all = append(all, ds...)
	}
	return all, nil
}

func (g *Guard) peekOne(c *window.Charge, n int64) ([]window.Decision, error) {
	own := divided(*c, n)
	hash := g.table().hash(c)
	s := g.table().shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(hash)
	if engine.IsHeld(c) || e == nil || e.until <= g.now() {
		return g.local.Peek(context.Background(), []window.Charge{own})
	}
	var h window.History
	now := g.now()
	if used := g.starts(&own, (e.use.units()+n-1)/n, e.use.level() == 0xff); used > 0 {
		h = h.ChargeMore(now, &own, used)
	}
	ds := make([]window.Decision, len(own.Policies))
	h.Look(now, &own, ds)
	h.Explain(now, &own, ds, false)
	return ds, nil
}
