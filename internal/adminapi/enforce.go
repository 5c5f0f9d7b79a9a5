package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/duration"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
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
	follow(r.Context(), zones) // the order comes after any that these stores have
	answer := control.Enforced{Zones: make([]control.ZoneEnforced, 0, len(zones))}
	for _, all := range zones {
		z := all[0]
		isChanged, err := z.Order(e.Mode, ttl, e.Reason)
		if err != nil && !e.All {
			return 0, nil, refused(http.StatusBadRequest, fmt.Errorf("mode: %w", err))
		}
		one := control.ZoneEnforced{Zone: z.Name(), Store: z.Store.Name()}
		if err != nil {
			one.Error = err.Error()
		}
		answer.Zones = append(answer.Zones, one)
		if isChanged {
			word, until := z.Enforced()
			storestate.Logger(one.Store).Info("enforcement of zone was changed by an operator",
				zap.String("zone", one.Zone), zap.String("enforce", word),
				zap.String("until", until), zap.String("reason", e.Reason))
		}
	}
	status, unsent := http.StatusOK, follow(r.Context(), zones)
	for i, all := range zones {
		one := &answer.Zones[i]
		one.Enforce, one.Until = all[0].Enforced()
		if unsent[all[0].Store] && one.Error == "" {
			one.Note = noteUnsent
			status = http.StatusAccepted
		}
	}
	return status, &answer, nil
}

// follow tells the Caddys that share the stores of zones of the orders of this one, and takes up theirs. It returns the
// stores that are away.
func follow(ctx context.Context, zones [][]*running.Zone) (away map[*openstore.Store]bool) {
	away = make(map[*openstore.Store]bool)
	for _, all := range zones {
		s := all[0].Store
		if _, asked := away[s]; !asked {
			away[s] = s.Overrides.Follow(ctx) != nil
		}
	}
	return away
}
