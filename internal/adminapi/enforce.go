package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// Notes of an order.
const (
	noteExempt = "lets all requests pass and counts none, as count_if, settle or its store keeps it from counting in shadow"
	noteUnsent = "the store is away: this Caddy tells the others that share it when it is back"
)

// setEnforcement sets whether zones deny, for a while: on this Caddy at once, and on those that share the store soon.
func setEnforcement(r *http.Request, body []byte) (int, any, error) {
	e, err := control.DecodeEnforce(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	var ttl time.Duration
	if e.TTL != "" {
		ttl, err = quantity.ParseDuration(e.TTL)
		if err != nil || ttl <= 0 || ttl > enforce.Longest {
			return 0, nil, refused(http.StatusBadRequest, errors.New("ttl: must be a duration of 30d at most, such as 1h"))
		}
	}
	e.By = cmp.Or(e.By, clientOf(r))
	zones := running.Zones.List()
	percent, err := enforce.Percent(e.Mode)
	switch {
	case err == nil:
		e.Mode = enforce.Word(percent) // Caddys that share the store, and logs, have one spelling
	case e.All && e.Mode != enforce.Config:
		return 0, nil, refused(http.StatusBadRequest, errors.New("mode: must be on, shadow, mark, config, or a whole percentage such as 25%"))
	}
	if !e.All {
		own, err := findZone(e.Zone, e.Store)
		if err != nil {
			return 0, nil, err
		}
		zones = [][]*running.ActiveZone{own}
	}
	follow(r.Context(), zones) // the order comes after any that these stores have
	answer := control.Enforced{Zones: make([]control.ZoneEnforced, 0, len(zones))}
	for _, all := range zones {
		z := all[0]
		err := z.Propose(enforce.Order{Mode: e.Mode, All: e.All, Why: e.Why}, ttl)
		if err != nil && e.Mode == control.EnforceShadow {
			err = fmt.Errorf("%w; to let all its requests pass for a while, run override set --zone %s --all --exempt --ttl %s", err, z.Name(), e.TTL)
		}
		if err != nil && !e.All {
			return 0, nil, refused(http.StatusBadRequest, fmt.Errorf("mode: %w", err))
		}
		one := control.ZoneEnforced{Zone: z.Name(), Store: z.Store.Name()}
		if err != nil {
			one.Error = err.Error()
		}
		answer.Zones = append(answer.Zones, one)
	}
	status, unsent := http.StatusOK, follow(r.Context(), zones)
	for i, all := range zones {
		one := &answer.Zones[i]
		one.Enforce, one.Until = all[0].Enforced()
		var notes []string
		if one.Enforce == control.EnforceExempt {
			notes = append(notes, noteExempt)
		}
		if unsent[all[0].Store] && one.Error == "" {
			notes = append(notes, noteUnsent)
			status = http.StatusAccepted
		}
		one.Note = strings.Join(notes, "; ")
	}
	return status, &answer, nil
}

// follow tells the Caddys that share the stores of zones of the orders of this one, and takes up theirs. It returns the
// stores that are away.
func follow(ctx context.Context, zones [][]*running.ActiveZone) (away map[*openstore.SharedStore]bool) {
	away = make(map[*openstore.SharedStore]bool)
	for _, all := range zones {
		s := all[0].Store
		if _, asked := away[s]; !asked {
			away[s] = s.Overrides.Follow(ctx) != nil
		}
	}
	return away
}
