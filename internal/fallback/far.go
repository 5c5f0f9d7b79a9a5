package fallback

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// repayBeside is repayAndTake for a store that is so far away that there is no time for one
// call after the other. Both are made at the same time, the booking first; should the store
// hear of it second, it lets units pass once more that were admitted here.
func (g *Guard) repayBeside(ctx context.Context, charges []window.Charge, room []window.Decision) ([]window.Decision, error) {
	booked := make(chan []int64, 1)
	go func() {
		units, _ := g.repay(ctx, charges) // what is not booked stays owed, or in doubt
		booked <- units
	}()
	ds, err := g.ask(ctx, charges, room)
	if units := <-booked; err != nil {
		g.doubt(charges, units)
	}
	return ds, err
}
