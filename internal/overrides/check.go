package overrides

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Complete checks a record that an operator sends, and makes it one that can be kept: its ID, Until
// and Created are set, and its limits are written in one way. Errors name the field and the cure,
// and quote no key.
func (r *Record) Complete(now time.Time) error {
	for _, err := range []error{r.checkSelector(), r.checkLimit(), r.checkEnd(now)} {
		if err != nil {
			return err
		}
	}
	if r.TTL != "" {
		length, _ := quantity.ParseDuration(r.TTL) // no error: it was checked
		until := now.Add(length)
		r.Until, r.TTL = &until, ""
	}
	if r.Until != nil {
		until := r.Until.UTC().Truncate(time.Millisecond)
		r.Until = &until
	}
	r.Store = ""
	r.Created = now.UTC().Truncate(time.Second)
	r.identify()
	return r.checkSize()
}

// checkSize reports a record that is too long to be kept.
func (r *Record) checkSize() error {
	b, err := json.Marshal(r)
	if err != nil {
		return errors.New("until: the year must be from 0 to 9999")
	}
	if len(b) > MaxRecord {
		return fmt.Errorf("reason: the record takes %d bytes of JSON, %d at most; shorten reason, by or the key", len(b), MaxRecord)
	}
	return nil
}

func (r *Record) checkSelector() error {
	if r.Zone == "" {
		return errors.New("zone: required; GET /sliding_window/zones lists the zones")
	}
	if n := count(r.Key != nil || len(r.Hashes) > 0, r.Values != nil, r.CIDR != "", r.Pattern != "", r.All); n != 1 {
		return fmt.Errorf("key: %d of key, values, cidr, pattern and all are given; send exactly one", n)
	}
	switch {
	case r.Values != nil && len(r.Values) == 0:
		return errors.New("values: empty; send a value for each placeholder of the key, or all for all keys")
	case r.CIDR != "":
		_, err := ParseCIDR(r.CIDR)
		return err
	case r.Pattern != "":
		_, _, err := parsePattern(r.Pattern)
		return err
	}
	return nil
}

func (r *Record) checkLimit() error {
	if n := r.effects(); n != 1 {
		return fmt.Errorf("limits: %d of limits or concurrent, factor, deny and exempt are given; send exactly one", n)
	}
	if r.Concurrent < 0 {
		return errors.New("concurrent: must be 1 or more; send deny to deny everything")
	}
	if r.Factor != 0 && !(r.Factor > 0 && r.Factor <= 1e6) {
		return errors.New("factor: must be above 0 and at most 1000000; send deny to deny everything")
	}
	if r.Limits == nil {
		return nil
	}
	policies, err := r.policies()
	if err != nil {
		return err
	}
	for i, p := range policies {
		r.Limits[i].Window = normalize.Duration(p.Window)
	}
	return nil
}

// effects returns how many of what a record can say of its keys are given. Limits and concurrent go together.
func (r *Record) effects() int {
	return count(r.Limits != nil || r.Concurrent != 0, r.Factor != 0, r.Deny, r.Exempt)
}

// policies returns the limits as the engine takes them; nil for a record without.
func (r *Record) policies() ([]window.Policy, error) {
	if r.Limits == nil {
		return nil, nil
	}
	if len(r.Limits) == 0 {
		return nil, errors.New("limits: empty; send one limit or more, deny or exempt")
	}
	policies := make([]window.Policy, 0, len(r.Limits))
	for _, l := range r.Limits {
		length, err := quantity.ParseDuration(l.Window)
		if err != nil {
			return nil, errors.New("limits: window: must be a duration such as 90s, 5m, 1h, 1d or 1w")
		}
		p := window.Policy{Limit: l.Max, Window: length}
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		for _, other := range policies {
			if other.Window == p.Window {
				return nil, fmt.Errorf("limits: two have the window %s; keep the smaller one", l.Window)
			}
		}
		policies = append(policies, p)
	}
	return policies, nil
}

func (r *Record) checkEnd(now time.Time) error {
	switch {
	case r.Until != nil && r.TTL != "":
		return errors.New("ttl: cannot be combined with until; send one of them")
	case r.Expired(now):
		return errors.New("until: is over; send a later time, or delete the override")
	case r.TTL == "":
		return nil
	}
	length, err := quantity.ParseDuration(r.TTL)
	if err != nil || length < time.Second || length > 100*365*24*time.Hour {
		return errors.New("ttl: must be a duration of 1s or more, such as 30m, 2h or 7d")
	}
	return nil
}

// count returns how many are true.
func count(all ...bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

// ParseCIDR returns the network of a text as operators have to write it.
func ParseCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, errors.New("cidr: must be a network such as 192.0.2.0/24 or 2001:db8::/48")
	case p.Addr().Is4In6():
		return p, errors.New("cidr: is a network of IPv4 addresses; write it as 192.0.2.0/24")
	case p.Masked() != p:
		return p, fmt.Errorf("cidr: has bits below its length; write %s", p.Masked())
	}
	return p, nil
}

// parsePattern returns the literal part of a pattern, and whether keys end with it.
func parsePattern(text string) (literal string, suffix bool, err error) {
	switch {
	case text == "*":
		return "", false, errors.New("pattern: * is every key; send all")
	case len(text) > MaxLiteral:
		return "", false, fmt.Errorf("pattern: longer than %d bytes", MaxLiteral)
	case strings.Count(text, "*") != 1:
		return "", false, errors.New("pattern: must have one *, at its beginning or its end; send key for a key without")
	case text[0] == '*':
		return text[1:], true, nil
	case text[len(text)-1] == '*':
		return text[:len(text)-1], false, nil
	}
	return "", false, errors.New("pattern: the * must be at its beginning or its end")
}

// Scale returns a limit times a factor: 0 stays 0, and no other limit becomes 0.
func Scale(limit int64, factor float64) (int64, error) {
	if limit == 0 {
		return 0, nil
	}
	scaled := math.Round(float64(limit) * factor)
	if scaled > float64(window.MaxProduct) {
		return 0, errors.New("factor: the limit times factor is above 2^53; send a smaller factor, or limits")
	}
	return max(1, int64(scaled)), nil
}
