package slidingwindow

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// maxEnforce is the longest that an operator may have a zone enforced otherwise than it is
// configured: what is meant to last belongs into the configuration.
const maxEnforce = 30 * 24 * time.Hour

// enforce has zones of this Caddy deny, or not, for a while.
func enforce(_ *http.Request, body []byte) (int, any, error) {
	e, err := control.DecodeEnforce(body)
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	var until time.Time
	if e.TTL != "" {
		ttl, err := parseDuration(e.TTL)
		if err != nil || ttl <= 0 || ttl > maxEnforce {
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
			storeLogger(one.Store).Info("enforcement of zone was changed by an operator",
				zap.String("zone", one.Zone), zap.String("enforce", one.Enforce),
				zap.String("until", one.Until), zap.String("reason", e.Reason))
			emitEnforced(z.id(), one.Enforce, one.Until, e.Reason)
		}
	}
	return http.StatusOK, &answer, nil
}

// enforcedNow returns the word for how the zone is enforced, and until when if that is not what is
// configured.
func (z *Zone) enforcedNow() (word, until string) {
	if set := z.control.current(); set != nil && set.percent == z.enforced() {
		return enforceWord(set.percent), set.until.UTC().Format(time.RFC3339)
	}
	return enforceWord(z.percent), ""
}
