package fallback

import (
	"context"
	"errors"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// SettleBatch settles receipts, each with its own verdict.
//
// Units that the store charged are settled there. While the store is away, that is done once it is
// back: units that are spent more count here until then. An error says that the units stay as they
// were, or may: a give-back that may have run is not repeated.
//
// Units that were admitted here are corrected here, and what remains of them is owed to the store.
func (g *Guard) SettleBatch(ctx context.Context, all []engine.Settlement) []error {
	errs := make([]error, len(all))
	var there []engine.Settlement
	var places []int // of there among all
	for i := range all {
		if errs[i] = engine.CheckSettle(all[i].Charge, all[i].Delta); errs[i] != nil {
			continue
		}
		switch {
		case all[i].Origin == engine.InProcess:
			errs[i] = g.settleHere(all[i])
		case all[i].Delta != 0:
			there, places = append(there, all[i]), append(places, i)
		}
	}
	if len(there) == 0 {
		return errs
	}
	g.lower(there)
	for k, err := range g.breaker.SettleBatch(ctx, there) {
		errs[places[k]] = g.settledThere(&there[k], err)
	}
	return errs
}

// lower takes units that are about to be given back from what is known of the store, which was
// last heard when they were charged. A later answer is newer, and must not be lowered.
func (g *Guard) lower(all []engine.Settlement) {
	for i := range all {
		if s := &all[i]; s.Delta < 0 {
			hash := g.table().hash(&s.Charge)
			shard := g.table().shard(hash)
			shard.mu.Lock()
			shard.gaveBack(hash, -s.Delta)
			shard.mu.Unlock()
		}
	}
}

// settleHere settles what TakeLocal admitted.
func (g *Guard) settleHere(s engine.Settlement) error {
	own := divided(s.Charge, 1)
	hash := g.table().hash(&s.Charge)
	shard := g.table().shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if err := engine.Settle(context.Background(), g.local, own, s.At, s.Delta); err != nil {
		return err
	}
	rest := s.Charge.Cost + s.Delta
	if s.InDoubt { // the store may have charged the cost
		rest = s.Delta
	}
	if rest > 0 {
		g.owe(hash, &s.Charge, rest)
	}
	return nil
}

// settledThere does what the store's verdict on a settlement asks for.
func (g *Guard) settledThere(s *engine.Settlement, verdict error) error {
	if hopeless(verdict) {
		return verdict
	}
	hash := g.table().hash(&s.Charge)
	shard := g.table().shard(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	unknown := errors.Is(verdict, window.ErrUnknown)
	switch {
	case s.Delta < 0 && unknown:
		return verdict
	case s.Delta < 0:
		if verdict != nil && !g.correctLater(hash, g.later(s)) {
			return verdict
		}
	case unknown:
		g.inDoubt.add(&s.Charge, s.Delta)
		return verdict
	case verdict != nil:
		own := divided(s.Charge, 1)
		g.start(shard, hash, &own, 1)
		_ = g.local.ChargeMore(context.Background(), own, s.Delta)
		g.owe(hash, &s.Charge, s.Delta)
	}
	return nil
}

// later returns what gives units back once the store is back.
func (g *Guard) later(s *engine.Settlement) *corrections {
	r := &engine.Receipt{Charge: lasting(&s.Charge), At: s.At, Former: s.Former}
	return &corrections{charge: r.Charge, backs: []engine.Settlement{{Receipt: r, Delta: s.Delta}}}
}
