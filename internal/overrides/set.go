package overrides

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Target is the zone that records apply to: how its keys are spelt, and what fits.
type Target struct {
	Name string
	// KeyOf returns the key of requests whose placeholders have these values.
	KeyOf func(values []string) (string, error)
	// FoldPattern returns the literal part of a pattern as keys of the zone are spelt. Nil: as it is.
	FoldPattern func(literal string) string
	// Single is set if the key is one placeholder, and nothing else.
	Single bool
	// Leading bits by which addresses are grouped.
	IPv4Prefix, IPv6Prefix int
	// Hasher makes the HMAC of keys; nil if keys are kept as they are.
	Hasher Hasher
	// Clock is what the ends of records go by. Nil: the clock of this process.
	Clock *storeclock.Clock
	// Fit reports why limits, or what a factor makes of those of the zone, cannot hold in the zone.
	Fit func(*Rule) error
}

// Hasher makes the HMAC of keys under each secret.
type Hasher interface {
	// HashKey returns the HMAC under the secret number n, counted from 0. It reports false if no
	// secret has that number.
	HashKey(key string, n int) (sum [32]byte, ok bool)
}

// Rule is a record in a zone.
type Rule struct {
	*Record
	Policies []window.Policy // of Limits

	clock *storeclock.Clock
	until int64 // Unix ms; 0: never
	looks looking
}

// Decides reports whether the rule decides by itself: it denies the key, or exempts it. A nil rule does not.
func (r *Rule) Decides() bool { return r != nil && (r.Deny || r.Exempt) }

// Left returns how long the rule still holds: window.Never if it has no end.
func (r *Rule) Left() time.Duration {
	if r.Until == nil {
		return window.Never
	}
	return max(0, r.Until.Sub(r.clock.Now()))
}

// Misfit is a record that does not fit the zone, and why.
type Misfit struct {
	*Record
	Err error
}

// Set holds the records of a zone. It does not change.
type Set struct {
	time     *storeclock.Clock
	hasher   Hasher
	exact    map[string]*Rule
	hashed   map[[32]byte]*Rule
	v4, v6   networks
	patterns patterns
	all      *Rule
}

// Compile returns the records of a zone; nil without any. Of two that come to the same
// selector in this zone, the one that was created last counts.
func Compile(records []Record, z Target) (*Set, []Misfit) {
	s := &Set{time: z.Clock, hasher: z.Hasher}
	var misfits []Misfit
	some := false
	for i := range records {
		r := &records[i]
		if r.Zone != z.Name {
			continue
		}
		rule := &Rule{Record: r, clock: z.Clock}
		err := s.add(rule, &z)
		if err != nil {
			misfits = append(misfits, Misfit{r, err})
			continue
		}
		some = true
	}
	if !some {
		return nil, misfits
	}
	s.patterns.seal()
	return s, misfits
}

// Check reports why a record does not fit a zone.
func Check(r *Record, z Target) error {
	_, misfits := Compile([]Record{*r}, z)
	if len(misfits) > 0 {
		return misfits[0].Err
	}
	return nil
}

// newer reports whether r goes before another rule of the same selector, which may be nil.
func (r *Rule) newer(o *Rule) bool {
	if o == nil || r.Created.After(o.Created) {
		return true
	}
	return r.Created.Equal(o.Created) && r.ID < o.ID
}

func (s *Set) add(r *Rule, z *Target) error {
	// What a store holds may be of a newer version, or of somebody else.
	err := r.checkSelector()
	if err != nil {
		return err
	}
	if r.effects() != 1 || r.Concurrent < 0 || !(r.Factor >= 0 && r.Factor <= 1e6) {
		return errors.New("limits: the record has not exactly one of limits or concurrent, factor, deny and exempt as this version knows them")
	}
	if r.Policies, err = r.policies(); err != nil {
		return err
	}
	if r.Until != nil {
		r.until = r.Until.UnixMilli()
	}
	r.looks = looking{r.Window(), r.Forgotten()}
	if z.Fit != nil && !r.Deny && !r.Exempt {
		if err := z.Fit(r); err != nil {
			return err
		}
	}
	kind, _ := r.kind()
	switch {
	case kind == "all":
		s.all = r.over(s.all)
		return nil
	case kind == "hashes":
		return s.addHashes(r, z)
	case kind == "cidr", kind == "pattern":
		if z.Hasher != nil {
			return fmt.Errorf("%s: with hash_keys no key is kept; send key or values", kind)
		}
		if !z.Single {
			return fmt.Errorf("%s: the zone's key is more than one placeholder; send values", kind)
		}
		if kind == "cidr" {
			return s.addCIDR(r, z)
		}
		return s.addPattern(r, z)
	case z.Hasher != nil:
		return errors.New("key: the zone's store has hash_keys, and the record holds a key")
	}
	values := r.Values
	if r.Key != nil {
		values = []string{*r.Key}
	}
	key, err := z.KeyOf(values)
	if err != nil {
		return err
	}
	if s.exact == nil {
		s.exact = make(map[string]*Rule)
	}
	s.exact[key] = r.over(s.exact[key])
	return nil
}

func (s *Set) addHashes(r *Rule, z *Target) error {
	if z.Hasher == nil {
		return errors.New("hashes: the zone's store has no hash_keys")
	}
	if s.hashed == nil {
		s.hashed = make(map[[32]byte]*Rule)
	}
	for _, text := range r.Hashes {
		var sum [32]byte
		if n, err := hex.Decode(sum[:], []byte(text[:min(len(text), 64)])); err != nil || n != len(sum) || len(text) != 64 {
			return errors.New("hashes: must be HMACs of 64 hex digits each")
		}
		s.hashed[sum] = r.over(s.hashed[sum])
	}
	return nil
}

func (s *Set) addCIDR(r *Rule, z *Target) error {
	p, err := ParseCIDR(r.CIDR)
	if err != nil {
		return err
	}
	table, most := &s.v6, z.IPv6Prefix
	if p.Addr().Is4() {
		table, most = &s.v4, z.IPv4Prefix
	}
	if p.Bits() > most {
		return fmt.Errorf("cidr: is longer than /%d, by which the zone groups addresses; send key, or a shorter network", most)
	}
	table.add(p, r)
	return nil
}

func (s *Set) addPattern(r *Rule, z *Target) error {
	literal, suffix, err := parsePattern(r.Pattern)
	if err != nil {
		return err
	}
	if z.FoldPattern != nil {
		literal = z.FoldPattern(literal)
	}
	s.patterns.add(literal, suffix, r)
	return nil
}

// clock is the time of a look-up, which is read if a record that would decide ends at all.
type clock struct {
	of  *storeclock.Clock
	now int64
}

func (c *clock) live(r *Rule) bool {
	if r == nil {
		return false
	}
	if r.until == 0 {
		return true
	}
	if c.now == 0 {
		c.now = c.of.Milli()
	}
	return c.now < r.until
}

// Find returns the rule for a key as the zone counts it; nil without one. Precedence:
//
//   - the key itself
//   - the longest network
//   - the pattern with the longest literal part, then with the smallest ID
//   - all keys
//
// A nil set has no rules.
func (s *Set) Find(key string) *Rule {
	if s == nil {
		return nil
	}
	return s.find(key, &clock{of: s.time})
}

// FindNetwork returns the rule for a network of a tier; nil without one: that of a record whose key the network is, or the factor
// of a record of all keys. Other records hold for the addresses alone.
func (s *Set) FindNetwork(network string) *Rule {
	if s == nil {
		return nil
	}
	c := &clock{of: s.time}
	if r := s.findKey(network, c); r != nil {
		return r
	}
	if c.live(s.all) && s.all.Factor != 0 {
		return s.all
	}
	return nil
}

// findKey returns the rule of a record whose key it is.
func (s *Set) findKey(key string, c *clock) *Rule {
	if r := s.exact[key]; c.live(r) {
		return r
	}
	if s.hashed != nil {
		return s.findHashed(key, c)
	}
	return nil
}

func (s *Set) find(key string, c *clock) *Rule {
	if r := s.findKey(key, c); r != nil {
		return r
	}
	if n, a := s.networksOf(key); n != nil {
		if r := n.find(a, c); r != nil {
			return r
		}
	}
	if r := s.patterns.find(key, c); r != nil {
		return r
	}
	if c.live(s.all) {
		return s.all
	}
	return nil
}

func (s *Set) findHashed(key string, c *clock) *Rule {
	for n := 0; ; n++ {
		r, ok := s.hashedWith(key, n)
		if !ok {
			return nil
		}
		if c.live(r) {
			return r
		}
	}
}

// hashedWith returns the rule of a key under the hasher's secret n, or nil. It reports whether there is
// such a secret.
func (s *Set) hashedWith(key string, n int) (*Rule, bool) {
	sum, ok := s.hasher.HashKey(key, n)
	if !ok {
		return nil, false
	}
	return s.hashed[sum], true
}
