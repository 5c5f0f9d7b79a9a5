package slidingwindow

import (
	"errors"
	"net/http"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
)

// top says which keys of a zone are denied or charged most.
func top(_ *http.Request, body []byte) (int, any, error) {
	query, err := control.DecodeTop(body)
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	zones, err := selectZone(control.Selector{Zone: query.Zone, Store: query.Store})
	if err != nil {
		return 0, nil, err
	}
	t := zones[0].zone.top
	if t == nil {
		return 0, nil, apiError(http.StatusConflict, errors.New("zone: keeps no top talkers; write top_talkers in it"))
	}
	found := t.by(query.By).Top(uptime.Now(), *query.Count)
	answer := &control.Top{
		Zone: query.Zone, Store: zones[0].id().store, By: query.By, Since: sinceTop(found.Since).UTC().Format(time.RFC3339),
		Total: found.Total, Hashed: t.label != nil, Keys: []control.TopKey{},
	}
	for _, key := range found.Keys {
		answer.Keys = append(answer.Keys, control.TopKey{Key: key.Key, Count: key.Count, Error: key.Error, Cut: key.Cut})
	}
	return http.StatusOK, answer, nil
}
