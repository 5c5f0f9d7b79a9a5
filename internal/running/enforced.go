package running

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

// Enforced returns the word for how the zone is enforced, and until when if that is not what is
// configured.
func (z *Zone) Enforced() (word, until string) {
	if set := z.Control.Current(); set != nil && set.Percent == z.Decider.Enforced() {
		return enforce.Word(set.Percent), set.Until.UTC().Format(time.RFC3339)
	}
	return enforce.Word(z.Percent), ""
}

// Enforce enforces the zone as word says until a time, or as it is configured, and has handlers of events hear of
// it. A zone that is as configured, and stays so, is not changed.
func (z *Zone) Enforce(word string, until time.Time, reason string) (isChanged bool, err error) {
	isAsConfigured := word == enforce.Config && z.Control.Current() == nil
	if err := z.Decider.Enforce(word, until, reason); err != nil || isAsConfigured {
		return false, err
	}
	now, end := z.Enforced()
	z.Control.Emit(now, end, reason)
	return true, nil
}

// Obey has the zone enforced as an operator has told another Caddy.
func (z *Zone) Obey(store string, o enforce.Order) {
	o, holds := o.HoldsFrom(z.Control.Clock().Now())
	if !holds {
		return
	}
	logger := storestate.Logger(store).With(zap.String("zone", z.Name()), zap.String("enforce", o.Mode), zap.String("reason", o.Reason))
	switch isChanged, err := z.Enforce(o.Mode, o.Until, o.Reason); {
	case err != nil:
		logger.Warn("enforcement of zone that was changed at another Caddy cannot hold in this one", zap.Error(err))
	case isChanged:
		logger.Info("enforcement of zone was changed at another Caddy", zap.Time("until", o.Until))
	}
}

// SendOrders tells the Caddys that share the stores of zones, and returns the zones of which they do not know yet.
func SendOrders(ctx context.Context, orders map[*Zone]string) (unsent []ID) {
	for s, zones := range InBooks(slices.Collect(maps.Keys(orders))) {
		texts := make(map[string]string, len(zones))
		for z, order := range orders {
			if z.Store == s {
				texts[z.Name()] = order
			}
		}
		if err := s.Overrides.Send(ctx, zones, texts); err != nil {
			for _, z := range zones {
				unsent = append(unsent, ID{s.ID, z.Name})
			}
		}
	}
	return unsent
}
