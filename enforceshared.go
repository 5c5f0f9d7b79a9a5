package slidingwindow

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

// follow takes up the orders that the store has, by zone, and sends those that it lacks.
func (b *overrideBook) follow(ctx context.Context, orders map[string]string) {
	b.mu.Lock()
	var zones []*runningZone // one of each name
	for z := range b.zones {
		if !slices.ContainsFunc(zones, func(o *runningZone) bool { return o.zone.Name == z.zone.Name }) {
			zones = append(zones, z)
		}
	}
	b.mu.Unlock()
	unsent := make(map[string]string)
	for _, z := range zones {
		isNew, own := z.zone.control.sync.Hear(orders[z.zone.Name])
		if own != "" {
			unsent[z.zone.Name] = own
		}
		if isNew {
			z.obey(b.name, enforce.ParseOrder(orders[z.zone.Name]))
		}
	}
	_ = b.send(ctx, zones, unsent) // again at the next look
}

// obey has a zone enforced as an operator has told another Caddy.
func (z *runningZone) obey(store string, o enforce.Order) {
	now := time.Now()
	if o.Mode == "" || !now.Before(o.Until) {
		return
	}
	logger := storestate.Logger(store).With(zap.String("zone", z.zone.Name), zap.String("enforce", o.Mode), zap.String("reason", o.Reason))
	if until := now.Add(enforce.Longest); o.Until.After(until) {
		o.Until = until
	}
	if err := z.zone.setEnforce(o.Mode, o.Until); err != nil {
		logger.Warn("enforcement of zone that was changed at another Caddy cannot hold in this one", zap.Error(err))
		return
	}
	logger.Info("enforcement of zone was changed at another Caddy", zap.Time("until", o.Until))
	word, until := z.zone.enforcedNow()
	emitEnforced(z.id(), word, until, o.Reason)
}

// send gives orders, by zone, to the Caddys that share the store.
func (b *overrideBook) send(ctx context.Context, zones []*runningZone, orders map[string]string) error {
	if b.shared == nil || len(orders) == 0 {
		return nil
	}
	if err := b.shared.WriteEnforce(ctx, orders, enforce.Longest); err != nil {
		return err
	}
	for _, z := range zones {
		if text := orders[z.zone.Name]; text != "" {
			z.zone.control.sync.Sent(text)
		}
	}
	return nil
}
