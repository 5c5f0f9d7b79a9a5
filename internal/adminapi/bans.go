package adminapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// Texts of answers about bans.
const (
	noteBans    = "other Caddys that share the store follow within 1 s"
	warnsHashes = "with hash_keys no address is kept: keys in the network that are banned stay so; lift them with key, since or all"
)

// listBans answers with the bans that are in force, by store, or with the addresses of a zone for other programs.
func listBans(r *http.Request, _ []byte) (int, any, error) {
	q, err := control.ParseBanQuery(r.URL.Query())
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	if q.Format != "json" {
		text, err := exportBans(r.Context(), &q)
		return http.StatusOK, text, err
	}
	stores, err := storesFor(q.Zone, q.Store)
	if err != nil {
		return 0, nil, err
	}
	answer := control.BanList{Stores: []control.BanSet{}}
	for _, s := range stores {
		state := s.State()
		set := control.BanSet{Store: control.InspectedStore{Name: state.Name, State: state.State, Since: state.Since, Cause: state.Cause}}
		if err := s.Bans.Look(r.Context()); err != nil {
			set.Store.State, set.Store.Cause = control.StateAway, err.Error()
		}
		set.Bans = shownBans(slices.DeleteFunc(s.Bans.List(), func(e banbook.Entry) bool {
			return q.Zone != "" && e.Zone != q.Zone || e.Shadow && !q.Shadow
		}))
		set.Count = len(set.Bans)
		if q.Newest > 0 {
			set.Bans = set.Bans[max(0, set.Count-q.Newest):]
		}
		answer.Stores = append(answer.Stores, set)
	}
	return http.StatusOK, answer, nil
}

// countBans returns how many bans of the zones of a store are in force, as far as this Caddy knows.
func countBans(s *openstore.SharedStore) (all []control.ZoneBans) {
	of := make(map[string]int)
	s.Bans.Count(of)
	for _, zone := range slices.Sorted(maps.Keys(of)) {
		all = append(all, control.ZoneBans{Zone: zone, Store: s.Name(), Bans: of[zone]})
	}
	return all
}

// shownBans returns bans as operators see them.
func shownBans(entries []banbook.Entry) []control.Ban {
	all := make([]control.Ban, len(entries))
	for i := range entries {
		all[i] = entries[i].Ban
	}
	return all
}

// setBan bans a key or a network.
func setBan(r *http.Request, body []byte) (int, any, error) {
	o, err := control.DecodeBan(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	z, key, err := banned(&o.BanSelector)
	if err != nil {
		return 0, nil, err
	}
	if z.Ban == nil {
		return 0, nil, refused(http.StatusBadRequest, errors.New("zone: has no bans; write ban in it, or deny a key or a network for a time with an override"))
	}
	if key != "" && z.Decider.TierOf(key) != "" {
		return 0, nil, refused(http.StatusBadRequest, errors.New("key: is a network that a tier counts, and no key that is banned; send cidr"))
	}
	length, err := o.Length(&z.Ban.Rule)
	record := overrides.Record{Zone: o.Zone, Store: o.Store, Key: o.Key, Values: o.Values, CIDR: o.CIDR, Deny: true}
	if err == nil && o.CIDR != "" {
		err = overrides.Check(&record, z.InBook.Records(nil))
	}
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	if err := z.Store.Bans.Look(r.Context()); err != nil { // before anything is changed
		return 0, nil, banError(err, false)
	}
	answer := control.BanChange{Warning: unseen(r.Context(), z, &record)}
	keep := time.Duration(max(z.Ban.Rule.In, z.Ban.Rule.Halve, z.Ban.Rule.Pardon)) * time.Millisecond
	o.By = cmp.Or(o.By, clientOf(r))
	book := z.Store.Bans
	if o.CIDR != "" {
		err = book.SetNetwork(r.Context(), o.Zone, o.CIDR, length, keep, o.Why)
	} else {
		err = book.SetKey(r.Context(), o.Zone, key, length, keep, o.Why)
	}
	if err != nil {
		return 0, nil, banError(err, true)
	}
	answer.Bans = shownBans(slices.DeleteFunc(book.List(), func(e banbook.Entry) bool {
		return e.Zone != o.Zone || e.Shadow || (o.CIDR == "" && !book.Is(&e, o.Zone, key)) || e.CIDR != o.CIDR
	}))
	answer.Note = noteOfBans(z.Store)
	return http.StatusOK, answer, nil
}

// banned returns the zone of a selector, and the key that it names, if it names one.
func banned(s *control.BanSelector) (z *running.ActiveZone, key string, err error) {
	if s.Key == nil && s.Values == nil {
		zones, err := findZone(s.Zone, s.Store)
		if err != nil {
			return nil, "", err
		}
		return zones[0], "", nil
	}
	c, err := findCounter(s.Selector)
	if err != nil {
		return nil, "", err
	}
	return c.zones[0], c.charge.Key, nil
}

func noteOfBans(s *openstore.SharedStore) string {
	if s.IsRemote() {
		return noteBans
	}
	return ""
}

// banError returns the answer to an error of a store, to which a change may have been sent.
func banError(err error, isSent bool) error {
	text := "nothing was changed, and the bans that hold stay in force; repeat it when GET " + control.Base + "status says ok"
	if isSent {
		text = "the change may hold all the same; list the bans before you repeat it"
	}
	return refused(http.StatusServiceUnavailable, fmt.Errorf("%w; %s", err, text))
}

// liftBans ends bans.
func liftBans(r *http.Request, body []byte) (int, any, error) {
	o, err := control.DecodeLift(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	o.By = cmp.Or(o.By, clientOf(r))
	l := lift{LiftOrder: &o}
	var stores []*openstore.SharedStore
	if o.Zone != "" {
		var z *running.ActiveZone
		if z, l.key, err = banned(&o.BanSelector); err == nil {
			stores = append(stores, z.Store)
		}
	} else {
		stores, err = storesFor("", o.Store)
	}
	if err != nil {
		return 0, nil, err
	}
	for _, s := range stores { // before any is changed
		if err := s.Bans.Look(r.Context()); err != nil {
			return 0, nil, banError(err, false)
		}
	}
	answer := control.BanChange{Bans: []control.Ban{}}
	for _, s := range stores {
		entries, err := l.in(s)
		if err != nil {
			return 0, nil, refused(http.StatusBadRequest, err)
		}
		if o.CIDR != "" && s.Overrides.Hasher() != nil {
			answer.Warning = warnsHashes
		}
		if _, err = s.Bans.Lift(r.Context(), entries, o.Why); err != nil {
			return 0, nil, banError(err, true)
		}
		answer.Bans, answer.Note = append(answer.Bans, shownBans(entries)...), cmp.Or(answer.Note, noteOfBans(s))
	}
	if len(answer.Bans) > 0 {
		return http.StatusOK, answer, nil
	}
	text := "there is no such ban; GET " + control.Base + "bans lists them"
	if answer.Warning != "" {
		text = "cidr: no such network is banned; " + answer.Warning
	}
	return 0, nil, refused(http.StatusNotFound, errors.New(text))
}

// lift selects bans.
type lift struct {
	*control.LiftOrder
	key string // if Key or Values are set
}

// in returns the bans of a store that are meant. Those in shadow deny nothing, and are left.
func (l *lift) in(s *openstore.SharedStore) ([]banbook.Entry, error) {
	var since time.Time
	if l.Since != "" {
		var err error
		if since, err = control.ParseSince(l.Since, s.Overrides.Clock().Now()); err != nil {
			return nil, err
		}
	}
	var network netip.Prefix
	if l.CIDR != "" {
		network = netip.MustParsePrefix(l.CIDR) // it was checked
	}
	return slices.DeleteFunc(s.Bans.List(), func(e banbook.Entry) bool {
		switch {
		case e.Shadow, l.Zone != "" && e.Zone != l.Zone, e.Began.Before(since), (l.Key != nil || l.Values != nil) && !s.Bans.Is(&e, l.Zone, l.key):
			return true
		case l.CIDR == "":
			return false
		}
		p, ok := addressesOf(&e)
		return !ok || p.Bits() < network.Bits() || !network.Contains(p.Addr())
	}), nil
}

// addressesOf returns the addresses that a ban is of. It reports false for keys that are no address, and for hashes.
func addressesOf(e *banbook.Entry) (netip.Prefix, bool) {
	text := e.CIDR
	if e.Key != nil {
		text = *e.Key
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return p, true
	}
	if len(text) > 64 {
		return netip.Prefix{}, false
	}
	a, ok := normalize.Address(text)
	if !ok {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}
