package control

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// BanFormats are the ways to list bans. Of those after json, each lists the addresses of one zone.
var BanFormats = []string{"json", "text", "nft", "ipset"}

// BanQuery is what GET /sliding_window/bans lists.
type BanQuery struct {
	Zone, Store string // empty: of all
	Shadow      bool   // those that deny nothing, too
	Format      string // one of BanFormats
	Newest      int    // how many of each store, at most; 0: all
}

// ParseBanQuery reads a query of a URL.
func ParseBanQuery(values url.Values) (q BanQuery, err error) {
	for name := range values {
		if !slices.Contains([]string{"zone", "store", "shadow", "format", "newest"}, name) {
			return q, errors.New("query: unknown name; use zone, store, shadow, format and newest")
		}
	}
	q = BanQuery{Zone: values.Get("zone"), Store: values.Get("store"), Shadow: values.Has("shadow"), Format: BanFormats[0]}
	if values.Has("format") {
		q.Format = values.Get("format")
	}
	if !slices.Contains(BanFormats, q.Format) {
		return q, errors.New("format: must be json, text, nft or ipset")
	}
	if values.Has("newest") {
		if q.Newest, err = strconv.Atoi(values.Get("newest")); err != nil || q.Newest < 1 {
			return q, errors.New("newest: must be a whole number from 1 on")
		}
	}
	return q, nil
}

// BanList is the answer to GET /sliding_window/bans.
type BanList struct {
	Stores []BanSet `json:"stores"`
}

// BanSet has the bans of a store that are in force, those that began first come first. If the store is away, they are
// those that this Caddy knows.
type BanSet struct {
	Store InspectedStore `json:"store"`
	Count int            `json:"count"` // of all that are meant
	Bans  []Ban          `json:"bans"`
}

// Ban is a ban that is in force. It has one of Key, KeyHash and CIDR.
type Ban struct {
	Zone string `json:"zone"`
	// As it counts.
	Key *string `json:"key,omitempty"`
	// The hash of a key, with hash_keys or if the key is long.
	KeyHash string `json:"key_hash,omitempty"`
	CIDR    string `json:"cidr,omitempty"`
	// Whether it denies nothing, as the zone did not when the ban began.
	Shadow bool `json:"shadow,omitempty"`
	// By the clock of the store.
	Began time.Time `json:"began"`
	Until time.Time `json:"until"`
	Left  float64   `json:"left"` // seconds
	// How many times the next ban grows.
	Level int64 `json:"level"`
	// Why, and by whom: if an operator set it.
	Why
}

// BanSelector names the key or the network of a ban.
type BanSelector struct {
	Selector
	// A network of addresses, in place of Key and Values.
	CIDR string `json:"cidr,omitempty"`
}

// BanOrder is what POST /sliding_window/bans/set reads.
type BanOrder struct {
	BanSelector
	// How long the ban lasts. Default: as long as the first ban of a key of the zone.
	TTL string `json:"ttl,omitempty"`
	Why
}

// LiftOrder is what POST /sliding_window/bans/lift reads. What it has narrows which bans end.
type LiftOrder struct {
	BanSelector
	// All bans of the zone.
	All bool `json:"all,omitempty"`
	// Bans that began at this time or later: in RFC 3339, a time of today such as 14:00, or how long ago, such as 30m.
	Since string `json:"since,omitempty"`
	Why
}

// BanChange is the answer to POST /sliding_window/bans/set and lift.
type BanChange struct {
	// The ban that was set, or those that were lifted.
	Bans []Ban `json:"bans"`
	// What holds for other Caddys that share the store.
	Note string `json:"note,omitempty"`
	// Why the ban may meet no key, or which bans were not lifted.
	Warning string `json:"warning,omitempty"`
}

// DecodeBan reads what is to be banned. Its errors are those of decode.
func DecodeBan(body []byte) (o BanOrder, err error) {
	if err := decode(body, &o, banWords("ttl")); err != nil {
		return o, err
	}
	if err := o.BanSelector.check(false); err != nil {
		return o, err
	}
	switch {
	case o.Zone == "":
		return o, errNoZone
	case o.Key == nil && o.Values == nil && o.CIDR == "":
		return o, errors.New("key: required, or values or cidr")
	}
	return o, o.Why.check()
}

// Length returns how long the ban lasts: TTL, or as long as the first ban of a rule.
func (o *BanOrder) Length(rule *bans.Rule) (time.Duration, error) {
	if o.TTL == "" {
		return time.Duration(rule.Length) * time.Millisecond, nil
	}
	length, err := quantity.ParseDuration(o.TTL)
	if err != nil || length < time.Second || length > bans.Longest*time.Millisecond {
		return 0, errors.New("ttl: must be a duration from 1s to 366d, such as 1h; to deny for good, set an override with deny")
	}
	return length, nil
}

// DecodeLift reads which bans are to end. Its errors are those of decode.
func DecodeLift(body []byte) (o LiftOrder, err error) {
	if err := decode(body, &o, banWords("all, since")); err != nil {
		return o, err
	}
	if err := o.BanSelector.check(o.All); err != nil {
		return o, err
	}
	if o.Key == nil && o.Values == nil && o.CIDR == "" && !o.All && o.Since == "" {
		return o, errors.New("key: required, or values, cidr, all or since")
	}
	return o, o.Why.check()
}

func banWords(more string) words {
	return words{
		encoding: "; a key with other bytes cannot be named",
		object:   "zone, and key, values or cidr",
		fields:   "zone, store, key, values, cidr, " + more + ", reason and by",
		types:    map[string]string{"request": "left out, as only inspect takes one", "values": "a list of strings", "all": "true, or left out"},
	}
}

func (s *BanSelector) check(all bool) error {
	n := 0
	for _, isGiven := range []bool{s.Key != nil, s.Values != nil, s.CIDR != "", all} {
		if isGiven {
			n++
		}
	}
	switch {
	case s.Request != nil:
		return errors.New("request: only inspect takes one; send zone, and key, values or cidr")
	case n > 1:
		return fmt.Errorf("key: %d of key, values, cidr and all are given; send one of them", n)
	case n == 1 && s.Zone == "" && s.CIDR == "":
		return errNoZone
	case s.CIDR == "":
		return nil
	}
	p, err := overrides.ParseCIDR(s.CIDR)
	if err == nil && p.Bits() == 0 {
		err = errors.New("cidr: is every address; to deny all requests, set an override with all and deny; to lift all bans, send all")
	}
	return err
}

// ParseSince returns the time that a text names: in RFC 3339, a time of the day of now such as 14:00, or how long before
// now, such as 30m.
func ParseSince(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if clock, errClock := time.Parse("15:04", text); errClock == nil {
			at, err = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location()), nil
		} else if length, errLength := quantity.ParseDuration(text); errLength == nil {
			at, err = now.Add(-length), nil
		}
	}
	switch {
	case err != nil:
		return at, errors.New("since: must be a time as 2026-12-31T23:59:59Z, a time of today as 14:00, or how long ago, as 30m")
	case at.After(now):
		return at, errors.New("since: is still to come; name a time that is over, with its date if it was yesterday")
	}
	return at, nil
}
