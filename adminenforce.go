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
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

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
			z.zone.control.sync.Order(order)
			changed = append(changed, z)
			storestate.Logger(one.Store).Info("enforcement of zone was changed by an operator",
				zap.String("zone", one.Zone), zap.String("enforce", one.Enforce),
				zap.String("until", one.Until), zap.String("reason", e.Reason))
			emitEnforced(z.id(), one.Enforce, one.Until, e.Reason)
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
	stores := make(map[*guard][]*runningZone)
	for _, z := range zones {
		stores[z.guard] = append(stores[z.guard], z)
	}
	for g, zones := range stores {
		orders := make(map[string]string, len(zones))
		for _, z := range zones {
			orders[z.zone.Name] = order
		}
		if err := g.overrides.send(ctx, zones, orders); err != nil {
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
	if set := z.control.current(); set != nil && set.percent == z.enforced() {
		return enforce.Word(set.percent), set.until.UTC().Format(time.RFC3339)
	}
	return enforce.Word(z.percent), ""
}
