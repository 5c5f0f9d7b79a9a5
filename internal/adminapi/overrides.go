package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// listOverrides answers with the overrides that this Caddy knows, by store.
func listOverrides(_ *http.Request, body []byte) (int, any, error) {
	filter, err := control.DecodeFilter(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	stores, err := storesFor(filter.Zone, filter.Store)
	if err != nil {
		return 0, nil, err
	}
	answer := control.OverrideList{Stores: []control.OverrideSet{}}
	for _, s := range stores {
		answer.Stores = append(answer.Stores, overrideSet(s, filter.Zone))
	}
	return http.StatusOK, answer, nil
}

// overrideSet returns the overrides of a store that have not ended, of one zone or of all.
func overrideSet(s *openstore.SharedStore, zone string) control.OverrideSet {
	c, lost := s.Overrides.Current()
	set := control.OverrideSet{Store: s.Name(), Version: c.Version, Lost: lost, Records: []overrides.Record{}}
	if !c.Read.IsZero() {
		set.Confirmed = c.Read.UTC().Format(time.RFC3339)
	}
	now := s.Overrides.Clock().Now()
	for _, r := range c.Records {
		if (zone == "" || r.Zone == zone) && !r.Expired(now) {
			set.Records = append(set.Records, r)
		}
	}
	for _, zones := range running.Zones.List() {
		z := zones[0]
		if z.Store != s || zone != "" && z.Name() != zone {
			continue
		}
		for _, m := range z.InBook.InForce.Misfits() {
			if set.Misfits == nil {
				set.Misfits = make(map[string]string)
			}
			set.Misfits[m.ID] = m.Err.Error()
		}
	}
	return set
}

// setOverrides sets records. Each takes the place of one with the same selector.
func setOverrides(r *http.Request, body []byte) (int, any, error) {
	records, err := overrides.Decode(body)
	if err == nil && len(records) == 0 {
		err = errors.New("body: an empty list; send one override or more")
	}
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	var s *openstore.SharedStore
	zones, sent := make([]*running.ActiveZone, len(records)), slices.Clone(records)
	for i := range records {
		o := &records[i]
		found, err := findZone(o.Zone, o.Store)
		if err != nil {
			return 0, nil, err
		}
		z := found[0]
		if s == nil {
			s = z.Store
		}
		if s.ID != z.Store.ID {
			return 0, nil, refused(http.StatusBadRequest, errors.New("store: the zones are on several stores; send the overrides of one store"))
		}
		o.By = cmp.Or(o.By, clientOf(r))
		if err = complete(z, o, s.Overrides.Clock().Now()); err == nil {
			err = cmp.Or(overrides.Check(o, z.InBook.Records(s.Overrides.Hasher())), checkNetwork(z, &sent[i]))
		}
		if err != nil {
			return 0, nil, refused(http.StatusBadRequest, err)
		}
		if zones[i] = z; slices.ContainsFunc(records[:i], func(earlier overrides.Record) bool { return isSame(z, &earlier, o) }) {
			return 0, nil, refused(http.StatusBadRequest, errors.New("key: another override of the list has the same selector; send one of them"))
		}
	}
	answer := control.OverrideChange{Records: records, InPlaceOf: make(map[string]string), Warnings: make(map[string]string)}
	for i, o := range records {
		if o.Factor == 0 {
			answer.InPlaceOf[o.ID] = limitsOf(zones[i], &sent[i])
		}
		if len(records) > overridebook.MostTold {
			continue // a look at the store for each would take long
		}
		if warning := unseen(r.Context(), zones[i], &sent[i]); warning != "" {
			answer.Warnings[o.ID] = warning
		}
	}
	return changeOverrides(s, r, "set", &answer, nil, func(all []overrides.Record) ([]overrides.Record, error) {
		answer.Replaced = make(map[string]string)
		for i, o := range records {
			all = append(slices.DeleteFunc(all, func(before overrides.Record) bool {
				if !isSame(zones[i], &before, &o) {
					return false
				}
				answer.Replaced[o.ID] = before.Effect()
				delete(answer.Warnings, o.ID) // it was given when that one was set
				return true
			}), o)
		}
		return all, nil
	})
}

// checkNetwork refuses what cannot hold for a key that is a network of a tier.
func checkNetwork(z *running.ActiveZone, sent *overrides.Record) error {
	if key, ok := keyOf(z, sent); ok && sent.Concurrent > 0 && z.Decider.TierOf(key) != "" {
		return errors.New("concurrent: only addresses count requests at the same time, and no networks; send cidr for all addresses of the network")
	}
	return nil
}

// deleteOverrides deletes the record with an ID, or with a selector.
func deleteOverrides(r *http.Request, body []byte) (int, any, error) {
	records, err := overrides.Decode(body)
	if err == nil && len(records) != 1 {
		err = errors.New("body: a list; send one object with id, or with zone and key, values, cidr, pattern or all")
	}
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	wanted := &records[0]
	var s *openstore.SharedStore
	is := func(o *overrides.Record) bool { return o.ID == wanted.ID }
	if wanted.ID != "" {
		s, err = findStoreWith(wanted.Store, is)
	} else {
		var z *running.ActiveZone
		if z, err = selectorOf(wanted); err == nil {
			s, is = z.Store, func(o *overrides.Record) bool { return isSame(z, o, wanted) }
		}
	}
	if err != nil {
		return 0, nil, err
	}
	var answer control.OverrideChange
	why := control.Why{Reason: wanted.Reason, By: cmp.Or(wanted.By, clientOf(r))}
	return changeOverrides(s, r, "deleted", &answer, &why, func(all []overrides.Record) ([]overrides.Record, error) {
		answer.Records = nil
		all = slices.DeleteFunc(all, func(o overrides.Record) bool {
			if !is(&o) {
				return false
			}
			answer.Records = append(answer.Records, o)
			return true
		})
		if answer.Records == nil {
			return nil, refused(http.StatusNotFound, errors.New("there is no such override; POST "+control.Base+"overrides/list lists them"))
		}
		return all, nil
	})
}

// selectorOf completes a record of which the selector alone counts, and returns its zone.
func selectorOf(r *overrides.Record) (*running.ActiveZone, error) {
	if r.Zone == "" {
		return nil, refused(http.StatusBadRequest, errors.New("id: required, or zone and key, values, cidr, pattern or all"))
	}
	found, err := findZone(r.Zone, r.Store)
	if err != nil {
		return nil, err
	}
	r.Limits, r.Concurrent, r.Factor, r.Deny, r.Exempt, r.Until, r.TTL = nil, 0, 0, true, false, nil, ""
	if err := complete(found[0], r, found[0].Store.Overrides.Clock().Now()); err != nil {
		return nil, refused(http.StatusBadRequest, err)
	}
	return found[0], nil
}

// replaceOverrides makes records all that a store has. Those that have ended are left out.
func replaceOverrides(r *http.Request, body []byte) (int, any, error) {
	set, err := control.DecodeSet(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	s, err := findStore(set.Store)
	if err != nil {
		return 0, nil, err
	}
	now := s.Overrides.Clock().Now()
	set.Records = slices.DeleteFunc(set.Records, func(o overrides.Record) bool { return o.Expired(now) })
	seen := make(map[string]bool)
	for i := range set.Records {
		o := &set.Records[i]
		o.By = cmp.Or(o.By, clientOf(r))
		created := o.Created
		err := o.Complete(now)
		if z := zoneOn(s, o.Zone); err == nil && z != nil {
			err = complete(z, o, now)
		} else if err == nil && s.Overrides.Hasher() != nil && (o.Key != nil || o.Values != nil) {
			err = errors.New("zone: no zone of this name runs on the store, so that the key cannot be hashed")
		}
		if err == nil && seen[o.ID] {
			err = errors.New("key: another override has the same selector; send one of them")
		}
		if err != nil {
			return 0, nil, refused(http.StatusBadRequest, fmt.Errorf("records: number %d: %w", i+1, err))
		}
		if !created.IsZero() && created.Before(now) {
			o.Created = created
		}
		seen[o.ID] = true
	}
	return changeOverrides(s, r, "replaced", &control.OverrideChange{Records: set.Records}, nil, nil)
}

// noteFollow is the note of a change in a store that is shared.
const noteFollow = "other Caddys that share the store follow within 3 s"

// changeOverrides changes the overrides of a store, and completes the answer. It tells the log what was done with the
// records of the answer, which edit may put there, and why; nil if the records say so. A nil edit replaces all by these.
func changeOverrides(s *openstore.SharedStore, r *http.Request, what string, answer *control.OverrideChange, why *control.Why, edit func([]overrides.Record) ([]overrides.Record, error)) (int, any, error) {
	version := strings.Trim(r.Header.Get("If-Match"), `"`)
	var c overridebook.Copy
	var err error
	if edit == nil {
		c, err = s.Overrides.Replace(r.Context(), version, answer.Records)
	} else {
		c, err = s.Overrides.Change(r.Context(), version, edit)
	}
	switch {
	case errors.Is(err, overridebook.ErrChanged) && version != "":
		return 0, nil, refused(http.StatusPreconditionFailed, fmt.Errorf("If-Match: %w (version %s)", err, cmp.Or(c.Version, "none")))
	case errors.Is(err, overridebook.ErrChanged), errors.Is(err, overridebook.ErrFull):
		return 0, nil, refused(http.StatusConflict, err)
	case errors.Is(err, window.ErrUnavailable):
		return 0, nil, refused(http.StatusServiceUnavailable, err)
	case err != nil:
		return 0, nil, err
	}
	tell(s, r, what, c.Version, answer.Records, why)
	answer.Store, answer.Version = s.Name(), c.Version
	if s.Overrides.Shared() {
		answer.Note = noteFollow
	}
	return http.StatusOK, answer, nil
}

// tell logs, and sends as events, what was done with records, and why; nil if the records say so. Keys stay out of
// events, and out of the log without log_key.
func tell(s *openstore.SharedStore, r *http.Request, what, version string, records []overrides.Record, why *control.Why) {
	logger := storestate.Logger(s.Name())
	if what == "replaced" || len(records) > overridebook.MostTold {
		logger.Info("overrides were "+what, zap.Int("overrides", len(records)), zap.String("by", clientOf(r)), zap.String("version", version))
		emitOverride(s.Name(), what, version, &overrides.Record{}, &control.Why{By: clientOf(r)})
		return
	}
	for _, o := range records {
		own := why
		if own == nil {
			own = &control.Why{Reason: o.Reason, By: o.By}
		}
		emitOverride(s.Name(), what, version, &o, own)
		fields := append(s.Overrides.Fields(&o), own.Fields()...)
		logger.Info("override was "+what, append(fields, zap.String("client", clientOf(r)), zap.String("version", version))...)
	}
}

// emitOverride sends the event that an operator has set, deleted or replaced overrides
// by this Caddy. The zone and the ID are empty if there are many of them.
func emitOverride(store, what, version string, o *overrides.Record, why *control.Why) {
	events.Emit(events.Override, map[string]any{"store": store, "change": what, "zone": o.Zone, "id": o.ID, "by": why.By, "reason": why.Reason, "version": version})
}

// clientOf returns the address of who asks.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
