package running

import (
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

// Order enforces the zone as an operator says for a time. The store gets the order from [overridebook.Book.Follow].
func (z *Zone) Order(word string, ttl time.Duration, reason string) (isChanged bool, err error) {
	err = z.Control.Make(z.Control.Clock().Now(), word, ttl, reason, func(o enforce.Order) (err error) {
		isChanged, err = z.Enforce(o.Mode, o.Until, o.Reason)
		return err
	})
	return isChanged, err
}

// Obey has the zone enforced as an operator has told another Caddy, or as this one was told if its clock was wrong. If
// that has ended, or cannot be done here, the zone is as configured: the order has replaced those before it.
func (z *Zone) Obey(store string, o enforce.Order) {
	holds := o.HoldsAt(z.Control.Clock().Now())
	logger := storestate.Logger(store).With(zap.String("zone", z.Name()), zap.String("enforce", o.Mode), zap.String("reason", o.Reason))
	isChanged, err := z.Enforce(holds.Mode, holds.Until, o.Reason)
	switch {
	case err != nil:
		_, _ = z.Enforce(enforce.Config, holds.Until, o.Reason) // it has no error
		logger.Warn("enforcement of zone that was changed at another Caddy cannot hold in this one", zap.Error(err))
	case isChanged && holds.Mode != o.Mode:
		logger.Info("enforcement of zone was changed at another Caddy, and is over: this one does what is configured")
	case isChanged && !o.Own:
		logger.Info("enforcement of zone was changed at another Caddy", zap.Time("until", o.Until))
	}
}
