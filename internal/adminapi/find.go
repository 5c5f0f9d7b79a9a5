package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// counter is a counter that an operator has named.
type counter struct {
	zones  []*running.ActiveZone // of all handlers that have it
	charge window.Charge
	rule   *overrides.Rule // of the charge; nil without one
	needs  running.Needs
}

// findCounter returns the counter that a selector names. Its errors hold no value of it.
func findCounter(s control.Selector) (*counter, error) {
	zones, err := findZone(s.Zone, s.Store)
	if err != nil {
		return nil, err
	}
	z := zones[0]
	values := s.Values
	if s.Key != nil {
		values = []string{*s.Key}
		if z.Key.Placeholders > 1 {
			return nil, refused(http.StatusBadRequest, fmt.Errorf("key: the zone's key has %d placeholders; send values, in order", z.Key.Placeholders))
		}
	}
	key, empty, err := z.Key.KeyOf(values)
	if err == nil && empty && z.EmptyKey != "" {
		err = fmt.Errorf("key: empty, and with empty_key %s such requests are not counted", z.EmptyKey)
	}
	if err != nil {
		return nil, refused(http.StatusBadRequest, err)
	}
	c, rule, needs := z.Decider.Charge(key)
	return &counter{zones, c, rule, needs}, nil
}

// findZone returns the zone of a name, of all handlers that have it. The store may be empty if one
// store has the zone.
func findZone(name, store string) ([]*running.ActiveZone, error) {
	all := running.Zones.Find(name)
	if len(all) == 0 {
		return nil, noZone(name)
	}
	zones, names, err := onStore(all, func(zones []*running.ActiveZone) string { return zones[0].Store.Name() }, store)
	switch {
	case zones != nil || err != nil:
		return zones, err
	case store == "":
		return nil, refused(http.StatusBadRequest, fmt.Errorf("store: required, as several stores have this zone; use one of %s", names))
	}
	return nil, refused(http.StatusNotFound, fmt.Errorf("store: has no zone of this name; use one of %s", names))
}

// mostNamed is how many zones an error names at most.
const mostNamed = 10

// noZone returns the error for a name that no zone has. It names zones that run.
func noZone(name string) error {
	var names []string
	for _, zones := range running.Zones.List() {
		names = append(names, strconv.Quote(zones[0].Name()))
	}
	names = slices.Compact(names)
	more := max(0, len(names)-mostNamed)
	text := strings.Join(names[:len(names)-more], ", ")
	if more > 0 {
		text += fmt.Sprintf(" or %d others", more)
	}
	switch {
	case names == nil:
		return refused(http.StatusNotFound, errors.New("zone: no zone runs; write sliding_window in the configuration"))
	case name == "":
		return refused(http.StatusBadRequest, fmt.Errorf("zone: required; use one of %s; GET %szones lists the zones", text, control.Base))
	}
	return refused(http.StatusNotFound, fmt.Errorf("zone: no zone of this name runs; use one of %s; GET %szones lists the zones", text, control.Base))
}

// onStore returns the one of all that is on the store of a name, or the only one if the name is empty. If there is no
// such one, it returns the zero T, and the names of the stores for an error.
func onStore[T any](all []T, nameOf func(T) string, store string) (one T, names string, err error) {
	if store == "" && len(all) == 1 {
		return all[0], "", nil
	}
	var quoted []string
	var found []T
	for _, each := range all {
		if nameOf(each) == store {
			found = append(found, each)
		}
		quoted = append(quoted, strconv.Quote(nameOf(each)))
	}
	quoted = slices.Compact(quoted)
	switch {
	case len(found) == 1:
		return found[0], "", nil
	case len(found) > 1 || len(quoted) == 1 && store == "":
		return one, "", refused(http.StatusConflict, errors.New("store: several stores have this name and other hash_keys; give each a prefix of its own"))
	}
	return one, strings.Join(quoted, ", "), nil
}

// findStore returns the store of a name; the only one if the name is empty.
func findStore(name string) (*openstore.SharedStore, error) {
	all := running.Zones.Stores()
	if len(all) == 0 {
		return nil, noZone("")
	}
	s, names, err := onStore(all, (*openstore.SharedStore).Name, name)
	switch {
	case s != nil || err != nil:
		return s, err
	case name == "" && len(all) > 1:
		return nil, refused(http.StatusBadRequest, fmt.Errorf("store: required, as there are several; use one of %s", names))
	}
	return nil, refused(http.StatusNotFound, errors.New("store: no zone that runs has a store of this name; use one of "+names))
}

// storesFor returns the stores of a name, or all if it is empty, for a list of what a zone or all have there.
func storesFor(zone, store string) ([]*openstore.SharedStore, error) {
	if zone != "" && len(running.Zones.Find(zone)) == 0 {
		return nil, noZone(zone)
	}
	all := slices.DeleteFunc(running.Zones.Stores(), func(s *openstore.SharedStore) bool { return store != "" && store != s.Name() })
	if store != "" && len(all) == 0 {
		_, err := findStore(store)
		return nil, err
	}
	return all, nil
}

// findStoreWith returns the store of a name, or the one that has a record.
func findStoreWith(name string, is func(*overrides.Record) bool) (*openstore.SharedStore, error) {
	all := running.Zones.Stores()
	if name != "" || len(all) == 0 {
		return findStore(name)
	}
	for _, s := range all {
		c, _ := s.Overrides.Current()
		for i := range c.Records {
			if is(&c.Records[i]) {
				return s, nil
			}
		}
	}
	return all[0], nil // another Caddy may just have set it; else it is not found there
}

// zoneOn returns a running zone on a store; nil without one of that name.
func zoneOn(s *openstore.SharedStore, name string) *running.ActiveZone {
	for _, zones := range running.Zones.Find(name) {
		if zones[0].Store.ID == s.ID {
			return zones[0]
		}
	}
	return nil
}
