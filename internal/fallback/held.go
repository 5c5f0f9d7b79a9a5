package fallback

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Units of window.Concurrent are held until they are given back, whoever admitted them. The local counts always
// have the total that this process holds, so that they can decide at any moment, and the store hears of units
// that were admitted here as soon as it can. Nothing is owed, known or in doubt: a total is.

// hold counts here what the store has admitted.
func (g *Guard) hold(charges []window.Charge, ds []window.Decision) {
	for i := range charges {
		if c := &charges[i]; engine.IsHeld(c) && c.Cost > 0 && window.Allowed(ds) {
			_ = g.local.ChargeMore(context.Background(), *c, c.Cost) // it was checked
		}
	}
}

// Free gives back the units of a charge that holds them, wherever they were admitted. It waits for no server.
func (g *Guard) Free(c window.Charge) {
	_ = g.local.GiveBack(context.Background(), c, 0, c.Cost) // they were checked when they were admitted
	_ = g.store.GiveBack(context.Background(), c, 0, c.Cost)
}
