package adminapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// getZones lists the zones that run.
func getZones(*http.Request, []byte) (int, any, error) {
	return http.StatusOK, control.Zones{Zones: listZones(false)}, nil
}

// listZones returns the zones that run, with what they have decided in the last minutes if recent.
func listZones(recent bool) []control.ZoneInfo {
	all := []control.ZoneInfo{}
	for _, zones := range running.Zones.List() {
		state := zones[0].State()
		if recent {
			state.Recent = zones[0].Recorder.Counters.Recent.Shown()
		}
		all = append(all, state)
	}
	return all
}

// getStatus says how stores, alerts and loads are. With the query zones it says which zones run, and with recent
// what these have decided in the last minutes: then one request, which is one line of Caddy's log, tells all.
func getStatus(r *http.Request, _ []byte) (int, any, error) {
	answer := control.Status{Version: control.Version(), Stores: []control.StoreInfo{}, Alerts: running.Alerts()}
	for _, s := range running.Zones.Stores() {
		state := s.State()
		state.Overrides, state.Members = overrideState(s), s.Members(r.Context())
		answer.Stores = append(answer.Stores, state)
		answer.Bans = append(answer.Bans, countBans(s)...)
	}
	answer.Loads = running.Loads()
	if r.URL.Query().Has("zones") {
		answer.Zones = listZones(r.URL.Query().Has("recent"))
	}
	return http.StatusOK, answer, nil
}

// overrideState is overrideSet in short.
func overrideState(s *openstore.SharedStore) control.OverrideState {
	set := overrideSet(s, "")
	state := control.OverrideState{Version: set.Version, Count: len(set.Records), Misfits: len(set.Misfits), Lost: set.Lost}
	if c, _ := s.Overrides.Current(); s.Overrides.Shared() && !c.Read.IsZero() {
		age := time.Since(c.Read).Seconds()
		state.Age = &age
	}
	return state
}

// top says which keys of a zone are denied or charged most.
func top(_ *http.Request, body []byte) (int, any, error) {
	query, err := control.DecodeTop(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	zones, err := findZone(query.Zone, query.Store)
	if err != nil {
		return 0, nil, err
	}
	t := zones[0].Top
	if t == nil {
		return 0, nil, refused(http.StatusConflict, errors.New("zone: keeps no top talkers; write top_talkers in it"))
	}
	if query.Tier != "" {
		if t = zones[0].TopOfTiers[query.Tier]; t == nil {
			return 0, nil, refused(http.StatusNotFound, errors.New("tier: the zone has no such tier; GET "+control.Base+"zones lists limits with their tiers"))
		}
	}
	return http.StatusOK, t.Top(query.By, *query.Count), nil
}
