package adminapi

import (
	"cmp"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Notes of a reset.
const (
	noteAway   = "the store is away: this Caddy has forgotten the counter, and tells the store when it is back; other Caddys may book what they let pass"
	noteShared = "other Caddys follow within 1 s"
	noteHeld   = "requests that are open hold their slots: each Caddy writes its true number again"
	noteLease  = "other Caddys follow within 1 s, but may still let pass what they hold in leases"
)

// reset forgets the history of a counter.
func reset(r *http.Request, body []byte) (int, any, error) {
	order, err := control.DecodeReset(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	found, err := findCounter(order.Selector)
	if err != nil {
		return 0, nil, err
	}
	s, c := found.zones[0].Store, &found.charge
	answer := &control.Reset{Zone: c.Zone, Key: c.Key, Tier: found.zones[0].Decider.TierOf(c.Key), Store: s.Name(), Done: true}
	var told []*openstore.SharedStore
	charges, holds := found.counted()
	for _, z := range found.zones { // stores of one name may differ in options, and remember apart
		if slices.Contains(told, z.Store) {
			continue
		}
		told = append(told, z.Store)
		for _, own := range charges {
			done, err := z.Store.Reset(r.Context(), own)
			if err != nil {
				return 0, nil, Unavailable(z, err)
			}
			answer.Done = answer.Done && done
		}
	}
	order.By = cmp.Or(order.By, clientOf(r))
	fields := []zap.Field{zap.String("zone", c.Zone), zap.Bool("done", answer.Done)}
	if found.zones[0].InBook.LogsKeys {
		fields = append(fields, zap.String("key", c.Key))
	}
	storestate.Logger(s.Name()).Info("counter was reset by an operator", append(fields, order.Fields()...)...)
	switch {
	case !answer.Done:
		answer.Note = noteAway
		return http.StatusAccepted, answer, nil
	case holds:
		answer.Note = noteHeld
	case !s.IsRemote():
	case c.Lease.Units > 0:
		answer.Note = noteLease
	default:
		answer.Note = noteShared
	}
	return http.StatusOK, answer, nil
}

// counted returns the charges whose counters have a key of the zone: its own, and that of requests at the same time. It reports
// whether there is one of these.
func (f *counter) counted() (charges []window.Charge, holds bool) {
	charges, holds = []window.Charge{f.charge}, engine.IsHeld(&f.charge)
	for _, t := range f.zones[0].Decider.InTiers(&f.charge) {
		if engine.IsHeld(&t.Charge) {
			charges, holds = append(charges, t.Charge), true
		}
	}
	return charges, holds
}
