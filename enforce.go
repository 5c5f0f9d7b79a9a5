package slidingwindow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/template"
)

// checkEnforce reports why the zone cannot be enforced in a way.
func (z *Zone) checkEnforce(word string) error {
	percent, err := enforce.Percent(word)
	if err != nil {
		return err
	}
	if percent != enforce.All && percent != enforce.None && z.Key != "" && len(template.Names(z.Key)) == 0 {
		return fmt.Errorf("enforce %s: the key has no placeholder, so that all requests would be in or out together; write on or shadow", word)
	}
	if percent != enforce.All && z.settles() {
		option := "count_if"
		if z.CountIf == nil {
			option = "settle"
		}
		return fmt.Errorf("enforce %s and %s cannot be combined, for units counted beside the handlers are not given back; write on, or take out %s", word, option, option)
	}
	return nil
}

// enforced returns the percentage of keys whose requests the zone may deny now.
func (z *Zone) enforced() int64 {
	set := z.control.Current()
	if set == nil || set.Percent != enforce.None && z.checkBeside() != nil {
		return z.percent
	}
	return set.Percent
}

// setEnforce enforces the zone as word says until a time, wherever the zone is used in this
// process. The word config goes back to the configuration.
func (z *Zone) setEnforce(word string, until time.Time) error {
	if word == enforce.Config {
		z.control.Reset()
		return nil
	}
	if word == "" {
		return fmt.Errorf("zone %s: enforce is missing; use one of on, shadow, config, or a percentage such as 25%%", z.Name)
	}
	err := z.checkEnforce(word)
	percent, _ := enforce.Percent(word)
	if err == nil && percent != enforce.All {
		err = z.use.checkShadow()
	}
	if err == nil && percent != enforce.None {
		err = z.checkBeside()
	}
	if err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.control.Set(percent, until)
	return nil
}

// checkBeside reports why a zone that is configured as shadow cannot be enforced while Caddy runs.
// CL.THROTTLE decides on a request that one zone counts, and which zones those are is settled
// when the configuration loads.
func (z *Zone) checkBeside() error {
	if z.percent != enforce.None {
		return nil
	}
	for _, o := range z.use.beside {
		if o.native != nil && !o.use.script {
			return fmt.Errorf("CL.THROTTLE may count zone %s, and decides on one zone at a time; change enforce in the configuration", o.Name)
		}
	}
	return nil
}

// checkShadow reports why a zone cannot count without denying.
func (u *zoneUse) checkShadow() error {
	if u.noShadow {
		return errors.New("the store cannot keep counters of requests that are not denied apart; write enforce on, or take another store")
	}
	return nil
}

// noteUnsent says that other Caddys do not know yet.
const noteUnsent = "the store is away: this Caddy tells the others that share it when it is back"

// setEnforcement has zones deny, or not, for a while: on this Caddy at once, and on those that share the store soon.
func setEnforcement(r *http.Request, body []byte) (int, any, error) {
	e, err := control.DecodeEnforce(body)
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	var until time.Time
	if e.TTL != "" {
		ttl, err := duration.Parse(e.TTL)
		if err != nil || ttl <= 0 || ttl > enforce.Longest {
			return 0, nil, apiError(http.StatusBadRequest, errors.New("ttl: must be a duration of 30d at most, such as 1h"))
		}
		until = time.Now().Add(ttl)
	}
	zones := running.list()
	if !e.All {
		own, err := selectZone(control.Selector{Zone: e.Zone, Store: e.Store})
		if err != nil {
			return 0, nil, err
		}
		zones = [][]*runningZone{own}
	}
	var answer control.Enforced
	var changed []*runningZone
	order := enforce.NewOrder(e.Mode, until, e.Reason)
	answer.Zones = []control.ZoneEnforced{}
	for _, all := range zones {
		z := all[0]
		err := z.zone.setEnforce(e.Mode, until)
		if err != nil && !e.All {
			return 0, nil, apiError(http.StatusBadRequest, fmt.Errorf("mode: %w", err))
		}
		one := control.ZoneEnforced{Zone: z.zone.Name, Store: z.id().store}
		one.Enforce, one.Until = z.zone.enforcedNow()
		if err != nil {
			one.Error = err.Error()
		}
		answer.Zones = append(answer.Zones, one)
		if err == nil {
			z.zone.control.Sync.Order(order)
			changed = append(changed, z)
			storestate.Logger(one.Store).Info("enforcement of zone was changed by an operator",
				zap.String("zone", one.Zone), zap.String("enforce", one.Enforce),
				zap.String("until", one.Until), zap.String("reason", e.Reason))
			z.zone.control.Emit(one.Enforce, one.Until, e.Reason)
		}
	}
	if unsent := sendOrder(r.Context(), changed, order); len(unsent) > 0 {
		for i := range answer.Zones {
			if one := &answer.Zones[i]; slices.Contains(unsent, zoneID{one.Store, one.Zone}) {
				one.Note = noteUnsent
			}
		}
		return http.StatusAccepted, &answer, nil
	}
	return http.StatusOK, &answer, nil
}

// sendOrder tells the Caddys that share the stores of zones, and returns the zones of which they do not know yet.
func sendOrder(ctx context.Context, zones []*runningZone, order string) (unsent []zoneID) {
	stores := make(map[*openstore.Store][]*runningZone)
	for _, z := range zones {
		stores[z.store] = append(stores[z.store], z)
	}
	for g, zones := range stores {
		orders := make(map[string]string, len(zones))
		for _, z := range zones {
			orders[z.zone.Name] = order
		}
		if err := g.Overrides.Send(ctx, inBook(zones), orders); err != nil {
			for _, z := range zones {
				unsent = append(unsent, z.id())
			}
		}
	}
	return unsent
}

// enforcedNow returns the word for how the zone is enforced, and until when if that is not what is
// configured.
func (z *Zone) enforcedNow() (word, until string) {
	if set := z.control.Current(); set != nil && set.Percent == z.enforced() {
		return enforce.Word(set.Percent), set.Until.UTC().Format(time.RFC3339)
	}
	return enforce.Word(z.percent), ""
}

// obey has a zone enforced as an operator has told another Caddy.
func (z *runningZone) obey(store string, o enforce.Order) {
	o, holds := o.HoldsFrom(time.Now())
	if !holds {
		return
	}
	logger := storestate.Logger(store).With(zap.String("zone", z.zone.Name), zap.String("enforce", o.Mode), zap.String("reason", o.Reason))
	if err := z.zone.setEnforce(o.Mode, o.Until); err != nil {
		logger.Warn("enforcement of zone that was changed at another Caddy cannot hold in this one", zap.Error(err))
		return
	}
	logger.Info("enforcement of zone was changed at another Caddy", zap.Time("until", o.Until))
	word, until := z.zone.enforcedNow()
	z.zone.control.Emit(word, until, o.Reason)
}
