package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

// noteUnsent says that other Caddys do not know yet.
const noteUnsent = "the store is away: this Caddy tells the others that share it when it is back"

// setEnforcement has zones deny, or not, for a while: on this Caddy at once, and on those that share the store soon.
func setEnforcement(r *http.Request, body []byte) (int, any, error) {
	e, err := control.DecodeEnforce(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	var ttl time.Duration
	if e.TTL != "" {
		ttl, err = duration.Parse(e.TTL)
		if err != nil || ttl <= 0 || ttl > enforce.Longest {
			return 0, nil, refused(http.StatusBadRequest, errors.New("ttl: must be a duration of 30d at most, such as 1h"))
		}
	}
	zones := running.Zones.List()
	if _, err := enforce.Percent(e.Mode); e.All && err != nil && e.Mode != enforce.Config {
		return 0, nil, refused(http.StatusBadRequest, errors.New("mode: must be on, shadow, config, or a whole percentage such as 25%"))
	}
	if !e.All {
		own, err := findZone(e.Zone, e.Store)
		if err != nil {
			return 0, nil, err
		}
		zones = [][]*running.Zone{own}
	}
	var answer control.Enforced
	changed := make(map[*running.Zone]string)
	answer.Zones = []control.ZoneEnforced{}
	for _, all := range zones {
		z := all[0]
		now := z.Control.Clock().Now()
		until := now.Add(ttl)
		isChanged, err := z.Enforce(e.Mode, until, e.Reason)
		if err != nil && !e.All {
			return 0, nil, refused(http.StatusBadRequest, fmt.Errorf("mode: %w", err))
		}
		one := control.ZoneEnforced{Zone: z.Name(), Store: z.Store.Name()}
		one.Enforce, one.Until = z.Enforced()
		if err != nil {
			one.Error = err.Error()
		}
		answer.Zones = append(answer.Zones, one)
		if err == nil {
			changed[z] = enforce.NewOrder(now, e.Mode, until, e.Reason)
			z.Control.Order(changed[z]) // other Caddys may have been told otherwise
			if !isChanged {
				continue
			}
			storestate.Logger(one.Store).Info("enforcement of zone was changed by an operator",
				zap.String("zone", one.Zone), zap.String("enforce", one.Enforce),
				zap.String("until", one.Until), zap.String("reason", e.Reason))
		}
	}
	if unsent := running.SendOrders(r.Context(), changed); len(unsent) > 0 {
		for i := range answer.Zones {
			if one := &answer.Zones[i]; slices.ContainsFunc(unsent, func(id running.ID) bool { return id.Store.Name == one.Store && id.Zone == one.Zone }) {
				one.Note = noteUnsent
			}
		}
		return http.StatusAccepted, &answer, nil
	}
	return http.StatusOK, &answer, nil
}
