package running

import (
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
)

// Enforced returns the word for how the zone is enforced, and until when if that is not what is
// configured.
func (z *ActiveZone) Enforced() (word, until string) {
	if set := z.Control.Current(); set != nil && set.Percent == z.Decider.Enforced() {
		return enforce.Word(set.Percent), set.Until.UTC().Format(time.RFC3339)
	}
	return enforce.Word(z.Percent), ""
}

// Enforce enforces the zone as an order says, and sends the event. A zone that is as configured, and stays so,
// is not changed.
func (z *ActiveZone) Enforce(o enforce.Order) (isChanged bool, err error) {
	isAsConfigured := o.Mode == enforce.Config && z.Control.Current() == nil
	if err := z.Decider.Enforce(o); err != nil || isAsConfigured {
		return false, err
	}
	now, end := z.Enforced()
	z.Control.Emit(now, end, o.Why)
	return true, nil
}

// Propose enforces the zone as an operator says for a time. The store gets the order from [overridebook.Book.Follow].
func (z *ActiveZone) Propose(o enforce.Order, ttl time.Duration) error {
	return z.Control.Make(z.Control.Clock().Now(), o, ttl, func(o enforce.Order) error {
		isChanged, err := z.Enforce(o)
		if isChanged {
			z.told(o).Info("enforcement of zone was changed by an operator")
		}
		return err
	})
}

// ApplyRemote applies an order that another Caddy got from an operator, or this Caddy while its clock was wrong. If
// that has ended, or cannot be done here, the zone is as configured: the order has replaced those before it.
func (z *ActiveZone) ApplyRemote(o enforce.Order) {
	holds := o.HoldsAt(z.Control.Clock().Now())
	isChanged, err := z.Enforce(holds)
	switch {
	case err != nil:
		_, _ = z.Enforce(enforce.Order{Mode: enforce.Config, Why: o.Why}) // it has no error
		z.told(o).Warn("enforcement of zone that was changed at another Caddy cannot hold in this one", zap.Error(err))
	case isChanged && holds.Mode != o.Mode:
		z.told(o).Info("enforcement of zone was changed at another Caddy, and is over: this one does what is configured")
	case isChanged && !o.Own:
		z.told(o).Info("enforcement of zone was changed at another Caddy")
	}
}

// told returns a logger that adds how an order has the zone enforced, until when, by whom and why. A zone that is exempt in
// place of shadow is told so.
func (z *ActiveZone) told(o enforce.Order) *zap.Logger {
	word := o.Mode
	if now, _ := z.Enforced(); word == enforce.Config || now == control.EnforceExempt {
		word = now
	}
	fields := []zap.Field{zap.String("enforce", word)}
	if o.Mode != enforce.Config {
		fields = append(fields, zap.String("until", o.Until.UTC().Format(time.RFC3339)))
	}
	return z.Control.Logger().With(append(fields, o.Fields()...)...)
}
