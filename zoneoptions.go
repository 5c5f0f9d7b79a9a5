package slidingwindow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// zoneOption is what the code knows of an option of a zone, beside the field of Zone that has its
// value. CONTRIBUTING.md names the places of a new one.
type zoneOption struct {
	name string
	// read reads the option from a Caddyfile. It reports what is wrong with its words at their line.
	read func(z *Zone, d *caddyfile.Dispenser) error
	// check compiles the option of a zone that has been read into c, which has the options before it, and reports what is wrong
	// with it; nil: nothing can be.
	check func(z *Zone, c *compiled.Settings) error
	// plain spells the value of z in one way in its copy p, and leaves it out where it is the
	// default; nil: it has one spelling. Zones are the same whose plain copies are.
	plain func(z, p *Zone)
}

// zoneOptions returns the options, in the order in which they are checked. zoneOptions is a function, because errors of an option name the options.
func zoneOptions() []zoneOption {
	return []zoneOption{
		{"match", readMatch, checkMatch, nil},
		{"key", readKey, checkKey, func(z, p *Zone) {
			p.Key = unless(unless(z.Key, template.DefaultKey), "{client_ip}")
		}},
		{"limit", readLimit, checkLimits, func(z, p *Zone) {
			p.Limits = nil
			for _, l := range z.Limits {
				p.Limits = append(p.Limits, l.plain())
			}
		}},
		{"fallback", readFallback, checkFallback, func(z, p *Zone) {
			if z.Fallback != nil {
				fallback := z.Fallback.plain()
				p.Fallback = &fallback
			}
		}},
		{"pack", readValue(func(z *Zone) *Value { return &z.Pack }), checkPack, func(z, p *Zone) {
			p.Pack = z.Pack.canonicalInt()
		}},
		{"algorithm", func(z *Zone, d *caddyfile.Dispenser) error {
			z.Algorithm = new(Algorithm)
			return z.Algorithm.unmarshal(d)
		}, checkAlgorithm, func(z, p *Zone) {
			if z.Algorithm != nil {
				p.Algorithm = z.Algorithm.plain(p.Limits)
			}
		}},
		{"cost", readValue(func(z *Zone) *Value { return &z.Cost }), checkCost, func(z, p *Zone) {
			p.Cost = unless(z.Cost.canonicalInt(), "1")
		}},
		{"lease", readLease, checkLease, func(z, p *Zone) {
			if z.Lease != nil {
				p.Lease = &Lease{z.Lease.Units.canonicalInt(), unless(z.Lease.TTL.canonicalDuration(), canonicalDuration(defaultLeaseTTL))}
			}
		}},
		{"concurrent", readConcurrent, checkConcurrent, func(z, p *Zone) {
			if z.Concurrent != nil {
				p.Concurrent = z.Concurrent.plain()
			}
		}},
		{"enforce", readEnforce, func(z *Zone, c *compiled.Settings) (err error) {
			c.Percent, err = c.CheckEnforce(z.Enforce)
			return err
		}, func(z, p *Zone) {
			if percent, err := enforce.Percent(z.Enforce); err == nil {
				p.Enforce = unless(enforce.Word(percent), control.EnforceOn)
			}
		}},
		{"count_if", func(z *Zone, d *caddyfile.Dispenser) (err error) {
			if z.CountIf, err = parseMatcher(d); err != nil {
				return err
			}
			return wrap(d, cmp.Or(z.checkUpTo("count_if"), z.checkUpTo("enforce")))
		}, checkCountIf, nil},
		{"settle", func(z *Zone, d *caddyfile.Dispenser) (err error) {
			if z.Settle, err = unmarshalSettle(d); err != nil {
				return err
			}
			return wrap(d, cmp.Or(z.checkUpTo("settle"), z.checkUpTo("enforce")))
		}, checkSettle, func(z, p *Zone) {
			if z.Settle != nil {
				p.Settle = z.Settle.plain()
			}
		}},
		{"load", func(z *Zone, d *caddyfile.Dispenser) (err error) {
			if z.Load, err = unmarshalLoad(d); err != nil {
				return err
			}
			if _, err = z.Load.compile(); err != nil {
				err = fmt.Errorf("load: %w", err)
			}
			return wrap(d, err)
		}, checkLoad, func(z, p *Zone) {
			if z.Load != nil {
				p.Load = z.Load.plain()
			}
		}},
		{"alert", func(z *Zone, d *caddyfile.Dispenser) (err error) {
			z.Alert, err = unmarshalAlert(d)
			return err
		}, func(z *Zone, c *compiled.Settings) (err error) {
			c.Alerting, err = z.Alert.rule()
			return err
		}, func(z, p *Zone) {
			if z.Alert != nil {
				p.Alert = z.Alert.plain()
			}
		}},
		{"ban", func(z *Zone, d *caddyfile.Dispenser) (err error) {
			if z.Ban, err = unmarshalBan(d); err != nil {
				return err
			}
			return wrap(d, z.checkUpTo("ban"))
		}, checkBan, func(z, p *Zone) {
			if z.Ban != nil {
				p.Ban = z.Ban.plain()
			}
		}},
		{"ipv4_prefix", readPrefix(func(z *Zone) **int { return &z.IPv4Prefix }, 32), nil, func(z, p *Zone) {
			if z.IPv4Prefix != nil && *z.IPv4Prefix == template.DefaultIPv4Prefix {
				p.IPv4Prefix = nil
			}
		}},
		{"ipv6_prefix", readPrefix(func(z *Zone) **int { return &z.IPv6Prefix }, 128), checkTiers, func(z, p *Zone) {
			if z.IPv6Prefix != nil && *z.IPv6Prefix == template.DefaultIPv6Prefix {
				p.IPv6Prefix = nil
			}
		}},
		{"fold_case", readWord(func(z *Zone) *bool { return &z.FoldCase }), nil, nil},
		{"empty_key", readEmptyKey, checkEmptyKey, func(z, p *Zone) { p.EmptyKey = unless(z.EmptyKey, compiled.EmptyShared) }},
		{"top_talkers", readWord(func(z *Zone) *bool { return &z.TopTalkers }), nil, nil},
	}
}

// zoneOptionNames returns the words of the options.
func zoneOptionNames() []string {
	var names []string
	for _, o := range zoneOptions() {
		names = append(names, o.name)
	}
	return names
}

// known returns the words of options that are looked for in the wrong place.
func known() suggest.Words {
	return suggest.Words{ZoneOptions: zoneOptionNames(), Algorithms: algorithmNames, AlgorithmOf: algorithmOf}
}

// readOption reads the option at the dispenser.
func (z *Zone) readOption(d *caddyfile.Dispenser) error {
	for _, o := range zoneOptions() {
		if o.name == d.Val() {
			return o.read(z, d)
		}
	}
	return known().Unknown(d, suggest.InZone)
}

// readValue reads one word, and checks it.
func readValue(field func(*Zone) *Value) func(*Zone, *caddyfile.Dispenser) error {
	return func(z *Zone, d *caddyfile.Dispenser) error {
		option := d.Val()
		if !d.AllArgs((*string)(field(z))) {
			return suggest.ArgErr(d)
		}
		return wrap(d, z.checkUpTo(option))
	}
}

// readWord reads an option without words.
func readWord(field func(*Zone) *bool) func(*Zone, *caddyfile.Dispenser) error {
	return func(z *Zone, d *caddyfile.Dispenser) error {
		if d.NextArg() {
			return suggest.ArgErr(d)
		}
		*field(z) = true
		return nil
	}
}

// readPrefix reads the length of a prefix of addresses.
func readPrefix(field func(*Zone) **int, most int) func(*Zone, *caddyfile.Dispenser) error {
	return func(z *Zone, d *caddyfile.Dispenser) error {
		option, bits := d.Val(), new(int)
		*field(z) = bits
		if err := parseInt(d, option, bits); err != nil {
			return err
		}
		return wrap(d, checkPrefix(option, bits, most))
	}
}

func readMatch(z *Zone, d *caddyfile.Dispenser) error {
	if err := readMatchers(d, &z.MatcherSetsRaw); err != nil {
		return err
	}
	return wrap(d, z.checkUpTo("match"))
}

// readMatchers reads a set of matchers, on the line of the option or in a block.
func readMatchers(d *caddyfile.Dispenser, sets *caddyhttp.RawMatcherSets) error {
	option := d.Val()
	if err := suggest.CheckMatch(option, suggest.PeekArgs(d)); err != nil {
		return d.WrapErr(err)
	}
	set, err := caddyhttp.ParseCaddyfileNestedMatcherSet(d)
	if err != nil {
		return suggest.MatchError(d, option, err)
	}
	*sets = append(*sets, set)
	return nil
}

func readKey(z *Zone, d *caddyfile.Dispenser) error {
	if words := suggest.PeekArgs(d); len(words) > 1 && strings.Contains(strings.Join(words, ""), "{") {
		return d.Errf("key %s: the key is one text; write key %s, or put it in quotes", strings.Join(words, " "), strings.Join(words, ""))
	}
	if !d.AllArgs(&z.Key) {
		return suggest.ArgErr(d)
	}
	return wrap(d, checkWrittenKey(z.Key))
}

func readLimit(z *Zone, d *caddyfile.Dispenser) error {
	var l Limit
	if err := l.read(d); err != nil {
		return err
	}
	if z.Limits = append(z.Limits, l); l.Tier != "" && z.tierAt == "" {
		z.tierAt = place(d)
	}
	if l.dynamic() && z.errNoFallback == nil {
		z.errNoFallback = d.WrapErr(errNoFallback(l))
	}
	return wrap(d, z.checkUpTo("limit"))
}

func readFallback(z *Zone, d *caddyfile.Dispenser) error {
	z.Fallback = new(Limit)
	if err := z.Fallback.read(d); err != nil {
		return err
	}
	return wrap(d, z.checkUpTo("fallback"))
}

// read reads the words of a limit.
func (l *Limit) read(d *caddyfile.Dispenser) error {
	words := suggest.PeekArgs(d)
	var tier string
	if at := slices.Index(words, "tier"); at > 0 {
		if len(words) != at+2 {
			return d.Errf("%s %s: a tier is one word behind the limit; write %[1]s <max> <window> tier 24/48", d.Val(), strings.Join(words, " "))
		}
		words, l.Tier = words[:at], words[at+1]
	}
	if len(words) == 1 {
		if one, ok := quantity.InOneWord(words[0]); ok {
			l.Max, l.Window = Value(one.Max), Value(one.Window)
			d.RemainingArgs()
			return nil
		}
	}
	if err := quantity.CheckWords(d.Val(), words); err != nil {
		return d.WrapErr(err)
	}
	to := []*string{(*string)(&l.Max), (*string)(&l.Window)}
	if l.Tier != "" {
		to = append(to, &tier, &l.Tier)
	}
	if !d.AllArgs(to...) {
		return suggest.ArgErr(d)
	}
	return nil
}

func readLease(z *Zone, d *caddyfile.Dispenser) error {
	z.Lease = new(Lease)
	words := d.RemainingArgs()
	if len(words) == 0 || len(words) > 2 {
		return suggest.ArgErr(d)
	}
	z.Lease.Units = Value(words[0])
	if len(words) == 2 {
		z.Lease.TTL = Value(words[1])
	}
	return wrap(d, z.checkUpTo("lease"))
}

func readEnforce(z *Zone, d *caddyfile.Dispenser) error {
	if !d.AllArgs(&z.Enforce) {
		return suggest.ArgErr(d)
	}
	if z.Enforce == "" {
		return d.Err("enforce \"\" is empty; use one of on, shadow, mark, or a percentage such as 25%")
	}
	return wrap(d, z.checkUpTo("enforce"))
}

// readEmptyKey reads what happens to an empty key, and the status of a denial.
func readEmptyKey(z *Zone, d *caddyfile.Dispenser) error {
	words := suggest.PeekArgs(d)
	if len(words) != 2 {
		return parseWord(d, "empty_key", &z.EmptyKey, compiled.EmptyShared, compiled.EmptySkip, compiled.EmptyDeny)
	}
	z.EmptyKey = words[0]
	status, err := strconv.Atoi(words[1])
	if err != nil {
		return d.Errf("empty_key %s: status %q is not a whole number", z.EmptyKey, words[1])
	}
	if status == 0 {
		return d.Errf("empty_key %s: status 0: must be from 400 to 599", z.EmptyKey)
	}
	z.EmptyKeyStatus = status
	d.RemainingArgs()
	return wrap(d, z.checkUpTo("empty_key"))
}

// withShare ends the definition of a zone whose handler has share.
const withShare = " with share"

// definition is what two zones of one name have to have in common, however they are
// written. Those that share their limits out while the store is away count differently
// then.
func (z *Zone) definition(share bool) string {
	b, _ := json.Marshal(z.plain()) // strings and numbers only: it cannot fail
	if share {
		b = append(b, withShare...)
	}
	return string(b)
}

// plain returns the zone as configured, with values spelt in one way and without those
// that are the default.
func (z *Zone) plain() *Zone {
	p := *z
	for _, o := range zoneOptions() {
		if o.plain != nil {
			o.plain(z, &p)
		}
	}
	return &p
}

// check reports what is wrong with the zone as configured. It compiles the zone.
func (z *Zone) check() error {
	if err := checkZoneName(z.Name); err != nil {
		return err
	}
	if err := z.checkUpTo(""); err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.c.CompleteTiers()
	return nil
}

// checkUpTo compiles the zone, and reports what is wrong with it. A zone of which more lines may follow is compiled up to an
// option, and what is wrong with that one counts.
func (z *Zone) checkUpTo(option string) error {
	z.c = z.compiled()
	for _, o := range zoneOptions() {
		var err error
		if o.check != nil {
			err = o.check(z, z.c)
		}
		if o.name == option || option == "" && err != nil {
			return err
		}
	}
	return nil
}

// compiled returns what needs no check of a compiled zone.
func (z *Zone) compiled() *compiled.Settings {
	c := &compiled.Settings{
		Name: z.Name, EmptyKey: z.EmptyKey, EmptyKeyStatus: z.EmptyKeyStatus, CountIf: z.CountIf, Placeholders: z.names(cmp.Or(z.Key, template.DefaultKey)),
		Configured: control.ZoneInfo{Name: z.Name, Key: template.Short(cmp.Or(z.Key, template.DefaultKey)), Algorithm: window.Zset{}.Name(), TopTalkers: z.TopTalkers},
	}
	if z.Algorithm != nil && z.Algorithm.Name != "" {
		c.Configured.Algorithm = z.Algorithm.Name
	}
	for _, l := range z.Limits {
		p := l.plain()
		c.Configured.Limits = append(c.Configured.Limits, control.LimitInfo{Max: template.Short(string(p.Max)), Window: string(p.Window), Tier: p.Tier})
	}
	switch {
	case z.CountIf != nil:
		c.Receipts = "count_if"
	case z.Settle != nil:
		c.Receipts = "settle"
	}
	return c
}
