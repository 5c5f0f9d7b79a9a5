package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func checkZoneName(name string) error {
	if name == "" {
		return errors.New("zone: name is missing")
	}
	if len(name) > 64 {
		return fmt.Errorf("zone %q: name is longer than 64 characters", name)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return fmt.Errorf("zone %q: name holds %q; use letters, digits, ., - and _", name, c)
		}
	}
	return nil
}

// checkKey reports what is wrong with the key by itself.
func checkKey(z *Zone, c *compiled.Settings) (err error) {
	if err := template.CheckKey(z.Key); err != nil {
		return err
	}
	prefixes := template.Prefixes{V4: template.DefaultIPv4Prefix, V6: template.DefaultIPv6Prefix}
	if z.IPv4Prefix != nil {
		prefixes.V4 = *z.IPv4Prefix
	}
	if z.IPv6Prefix != nil {
		prefixes.V6 = *z.IPv6Prefix
	}
	c.Key, err = template.NewKey(cmp.Or(z.Key, template.DefaultKey), prefixes)
	c.Key.FoldCase = z.FoldCase
	return err
}

func checkEmptyKey(z *Zone, _ *compiled.Settings) error {
	if err := errors.Join(checkPrefix("ipv4_prefix", z.IPv4Prefix, 32), checkPrefix("ipv6_prefix", z.IPv6Prefix, 128)); err != nil {
		return err
	}
	if err := checkWord("empty_key", z.EmptyKey, "", compiled.EmptyShared, compiled.EmptySkip, compiled.EmptyDeny); err != nil {
		return err
	}
	if z.EmptyKeyStatus != 0 && z.EmptyKey != compiled.EmptyDeny {
		return fmt.Errorf("empty_key_status %d: only empty_key deny has a status; write empty_key deny %[1]d, or take the status out", z.EmptyKeyStatus)
	}
	if err := checkStatus(z.EmptyKeyStatus); err != nil {
		return fmt.Errorf("empty_key deny: %w", err)
	}
	return nil
}

func checkMatch(z *Zone, _ *compiled.Settings) error { return checkMatchers("match", z.MatcherSetsRaw) }

// checkMatchers reports what is wrong with the matchers of an option.
func checkMatchers(option string, sets caddyhttp.RawMatcherSets) error {
	for _, set := range sets {
		if len(set) == 0 {
			return fmt.Errorf("%s: no matcher, so every request would match; name one, or take %[1]s out", option)
		}
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			if matchesNothing(matcher, strings.TrimSpace(string(set[matcher]))) {
				return fmt.Errorf("%s %s: there is nothing to match; write what, or take %[1]s out", option, matcher)
			}
		}
	}
	return checkMatcherNames(option, sets)
}

// matchesNothing reports whether the configuration of a matcher does not say what to match. To some
// matchers, such as file, an empty object says it.
func matchesNothing(matcher, raw string) bool {
	switch raw {
	case "null", "[]", "[{}]":
		return true
	case "{}":
		return slices.Contains([]string{"remote_ip", "client_ip", "header", "header_regexp", "query", "vars", "vars_regexp"}, matcher)
	}
	return false
}

// checkMatcherNames refuses matchers with a placeholder that never has a value.
func checkMatcherNames(option string, sets caddyhttp.RawMatcherSets) error {
	for _, set := range sets {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			for _, name := range template.NamesInMatcher(set[matcher]) {
				if err := template.CheckKnown(name); err != nil {
					return fmt.Errorf("%s %s: %w", option, matcher, err)
				}
			}
		}
	}
	return nil
}

func checkLimits(z *Zone, c *compiled.Settings) error {
	if len(z.Limits) == 0 {
		if z.Concurrent != nil {
			return nil
		}
		return errors.New("limit is missing: write limit <max> <window>, or concurrent <max>")
	}
	windows := make(map[time.Duration]bool)
	of := c // the settings of the zone, or of a tier
	for _, l := range z.Limits {
		limit, err := l.compile("limit")
		if err != nil {
			return err
		}
		if limit.Tier != of.Tier {
			if of, err = addTier(c, of, &l, limit.Tier); err != nil {
				return err
			}
			clear(windows)
		}
		if of.Limits = append(of.Limits, limit); limit.DynamicWindow() {
			continue
		}
		if windows[limit.Known.Window] {
			return fmt.Errorf("%s: another limit has the same window; keep the smaller one", l.in("limit"))
		}
		windows[limit.Known.Window], of.Longest = true, max(of.Longest, limit.Known.Window)
		if of != c {
			of.Policies = append(of.Policies, limit.Known)
		}
	}
	if !slices.ContainsFunc(z.Limits, Limit.dynamic) {
		for _, limit := range c.Limits {
			c.Policies = append(c.Policies, limit.Known)
		}
		c.Quotas = answer.NewQuotas(z.Name, c.Policies)
	}
	return nil
}

// addTier adds the tier of a limit to c. before has the limits in front of it.
func addTier(c, before *compiled.Settings, l *Limit, tier string) (*compiled.Settings, error) {
	networks, err := template.ParseTier(tier)
	switch {
	case tier == "":
		err = errors.New("limits go from the address to wider networks; write this limit in front of those with a tier")
	case err != nil: // it was checked
	case len(c.Limits) == 0:
		err = errors.New("the zone has no limit without a tier in front of this one; add one, or write ipv4_prefix and ipv6_prefix in place of tier")
	case before != c && !networks.IsWider(before.Networks):
		err = fmt.Errorf("limits go from the address to wider networks, and %s is not wider than %s, of IPv4 and of IPv6; write fewer bits of both, or another order", tier, before.Tier)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.in("limit"), err)
	}
	return c.AddTier(networks), nil
}

// checkTiers reports why tiers cannot be networks of the key. All of the zone must have been read.
func checkTiers(z *Zone, c *compiled.Settings) error {
	if c.Tiers == nil {
		return nil
	}
	l := z.Limits[len(c.Limits)]
	switch own := c.Key.Prefixes; {
	case !c.Key.IsAddress():
		return fmt.Errorf("%s: key %s is not the address of a client alone; write key {client_ip}, or a zone of its own for the network", l.in("limit"), c.Configured.Key)
	case !c.Tiers[0].Networks.IsWider(own):
		return fmt.Errorf("%s: the zone groups addresses by %s bits, and a tier has fewer, of IPv4 and of IPv6; write fewer, or set ipv4_prefix and ipv6_prefix", l.in("limit"), own)
	}
	return nil
}

func checkFallback(z *Zone, c *compiled.Settings) error {
	if z.Fallback == nil {
		if i := slices.IndexFunc(z.Limits, Limit.dynamic); i >= 0 {
			return errNoFallback(z.Limits[i])
		}
		return nil
	}
	if z.Fallback.dynamic() {
		return fmt.Errorf("fallback %s %s: must not hold a placeholder", z.Fallback.Max, z.Fallback.Window)
	}
	fallback, err := z.Fallback.compile("fallback")
	c.Fallback, c.Longest = fallback.Known, max(c.Longest, fallback.Known.Window)
	return err
}

// errNoFallback refuses a limit with a placeholder in a zone without fallback.
func errNoFallback(l Limit) error {
	most, window := l.Max, l.Window
	if most.dynamic() {
		most = "100"
	}
	if window.dynamic() {
		window = "1m"
	}
	return fmt.Errorf("limit %s %s: holds a placeholder, so a fallback is required; write fallback %s %s, or another limit, in the zone", l.Max, l.Window, most, window)
}

// checkAlgorithm reports what is wrong with the algorithm, by itself or for the
// limits as far as they are known.
func checkAlgorithm(z *Zone, c *compiled.Settings) (err error) {
	if c.Algorithm, c.Notes, err = z.Algorithm.compile(); err != nil {
		return err
	}
	if g, ok := c.Algorithm.(window.GCRA); ok {
		c.Algorithm, c.Native = window.GCRA{Burst: g.Burst}, g
	}
	for _, of := range append([]*compiled.Settings{c}, c.Tiers...) {
		if err := window.CheckPack(c.Algorithm, len(of.Limits), c.Pack); err != nil {
			return err
		}
	}
	var known []window.Policy
	for _, l := range c.AllLimits() {
		if !l.DynamicWindow() {
			known = append(known, l.Known)
		}
	}
	if z.Fallback != nil {
		known = append(known, c.Fallback)
	}
	for _, p := range known {
		if err := window.CheckPolicy(c.Algorithm, p); err != nil {
			return fmt.Errorf("algorithm %s: %w", z.Algorithm.Name, err)
		}
	}
	if c.Native.Native == window.NativeOn {
		return errNative(c.CheckNative())
	}
	return nil
}

// errNative refuses native on for a reason, if there is one.
func errNative(reason error) error {
	if reason == nil {
		return nil
	}
	return fmt.Errorf("algorithm gcra: native on: %w; use native auto", reason)
}

func checkLease(z *Zone, c *compiled.Settings) (err error) {
	if c.Lease, err = z.Lease.engine(c.Algorithm); err == nil && z.Lease != nil && c.Tiers != nil {
		err = errors.New("lease and tier cannot be combined, for a request that counts in several places takes no lease; take out one of them")
	}
	return err
}

// checkPack reports what is wrong with pack by itself.
func checkPack(z *Zone, c *compiled.Settings) error {
	if z.Pack == "" {
		return nil
	}
	n, err := z.Pack.int()
	if err == nil && n <= 0 {
		err = fmt.Errorf("%d is not above 0; write how many keys are expected", n)
	}
	if err != nil {
		return fmt.Errorf("pack %w", err)
	}
	c.Pack = n
	return nil
}

// checkCountIf reports what is wrong with count_if, or with another option beside it.
func checkCountIf(z *Zone, c *compiled.Settings) error {
	m := z.CountIf
	if m == nil {
		return nil
	}
	if err := checkMatcher("count_if", m); err != nil {
		return err
	}
	if c.Cost == 0 {
		return errors.New("count_if: cost 0 spends nothing that could be given back; take out cost or count_if")
	}
	return checkReceipts(z, c, "count_if")
}

// names returns the placeholders of a zone with a key.
func (z *Zone) names(key string) []placeholders.Use {
	var uses []placeholders.Use
	add := func(option string, names []string) {
		for _, name := range names {
			if use := (placeholders.Use{Option: option, Name: name}); !slices.Contains(uses, use) {
				uses = append(uses, use)
			}
		}
	}
	add("key", template.Names(key))
	for _, l := range z.Limits {
		add("limit", template.Names(string(l.Max)))
		add("limit", template.Names(string(l.Window)))
	}
	if z.Concurrent != nil {
		add("concurrent", template.Names(string(z.Concurrent.Max)))
	}
	add("cost", template.Names(string(z.Cost)))
	if z.Algorithm != nil {
		for _, f := range z.Algorithm.Fields {
			add("fields", template.Names(f.Value))
		}
	}
	addMatchers := func(option string, sets caddyhttp.RawMatcherSets) {
		for _, set := range sets {
			for _, matcher := range slices.Sorted(maps.Keys(set)) {
				add(option, template.NamesInMatcher(set[matcher]))
			}
		}
	}
	addMatchers("match", z.MatcherSetsRaw)
	if z.Ban != nil {
		addMatchers("ban", z.Ban.ExceptRaw)
	}
	return uses
}

// checkSettle reports what is wrong with settle, or with what is configured beside it.
func checkSettle(z *Zone, c *compiled.Settings) (err error) {
	if z.Settle == nil {
		return nil
	}
	if c.Settle, err = z.Settle.compile(); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if z.CountIf != nil {
		return errors.New("settle and count_if cannot be combined; use refund_if in settle, or two zones")
	}
	if c.Cost == 0 {
		return errors.New("settle: cost 0 reserves nothing that could be settled; write what a request is thought to cost, or take out cost")
	}
	if c.Cost > c.Settle.Most {
		return fmt.Errorf("settle: max %s is below cost %s; raise max, or lower cost", z.Settle.Max, z.Cost)
	}
	if c.Settle.ReserveMost > 0 && c.Cost > c.Settle.ReserveMost {
		return fmt.Errorf("settle: reserve_max %s is below cost %s, which is reserved if the body tells nothing; raise reserve_max, or lower cost", z.Settle.ReserveMax, z.Cost)
	}
	return checkReceipts(z, c, "settle")
}

// checkReceipts reports why an option cannot settle what the zone charges.
func checkReceipts(z *Zone, c *compiled.Settings, option string) error {
	if err := engine.CheckReceipts(c.Algorithm, c.Lease); err != nil {
		return fmt.Errorf("%s: %w, or take out %s", option, err, option)
	}
	return nil
}

// checkLoad reports what is wrong with load, or with what is configured beside it.
func checkLoad(z *Zone, c *compiled.Settings) (err error) {
	if z.Load == nil {
		return nil
	}
	if c.Scaling, err = z.Load.compile(); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if z.Lease != nil {
		return errors.New("load and lease cannot be combined: a lease needs one limit for all requests on a key; take out one of them")
	}
	if _, ok := c.Algorithm.(window.GCRA); ok {
		return errors.New("load and algorithm gcra cannot be combined: Caddys with different factors would spoil each other's counts; use zset, log, stream or slices")
	}
	return checkScaled(z, c)
}

// checkScaled reports why the limits cannot follow the load.
func checkScaled(z *Zone, c *compiled.Settings) error {
	limits := c.AllLimits()
	if len(limits) != len(z.Limits) || len(limits) == 0 {
		return nil // of the limit
	}
	scaled, written, dynamic := []window.Policy(nil), []Limit(nil), false
	for i, l := range z.Limits {
		limit := &limits[i]
		if limit.DynamicWindow() {
			return fmt.Errorf("limit %s %s: load scales limits with windows of 60s or less, and this one is not known before a request comes; write the window without a placeholder", l.Max, l.Window)
		}
		if limit.Known.Window <= load.LongestScaled {
			scaled, written, dynamic = append(scaled, limit.Known), append(written, l), dynamic || limit.DynamicMax()
		}
	}
	if scaled == nil {
		l := z.Limits[0]
		return fmt.Errorf("limit %s %s: load scales limits with windows of 60s or less, since a longer one remembers what passed before and would deny everything; add a short limit, such as limit %d 1s", l.Max, l.Window, shortLimit(&c.Limits[0]))
	}
	if z.Fallback != nil {
		if c.Fallback.Window > load.LongestScaled && dynamic {
			return fmt.Errorf("fallback %s %s: load scales limits with windows of 60s or less, and this one may take the place of such a limit; write a shorter window", z.Fallback.Max, z.Fallback.Window)
		}
		if c.Fallback.Window <= load.LongestScaled {
			scaled, written = append(scaled, c.Fallback), append(written, *z.Fallback)
		}
	}
	for i, p := range scaled {
		if err := window.CheckPolicy(c.Algorithm, load.Scale(p, c.Scaling.Ceiling)); err != nil {
			return fmt.Errorf("load: limit %s %s at ceiling %s: %w", written[i].Max, written[i].Window, z.Load.Ceiling, err)
		}
	}
	return nil
}

// shortLimit returns what a limit allows in a second, on average; 100 if that is not known.
func shortLimit(l *compiled.LimitTemplate) int64 {
	if l.Dynamic() {
		return 100
	}
	return max(1, int64(math.Round(float64(l.Known.Limit)*float64(time.Second)/float64(l.Known.Window))))
}

// checkCost reports what is wrong with the cost by itself.
func checkCost(z *Zone, c *compiled.Settings) error {
	c.Cost, c.Spends = 1, template.NewText(string(z.Cost))
	if err := template.Check(string(z.Cost)); err != nil {
		return fmt.Errorf("cost %w", err)
	}
	if z.Cost == "" || z.Cost.dynamic() {
		return nil
	}
	n, err := z.Cost.int()
	if err == nil && n < 0 {
		err = fmt.Errorf("%d is negative; use 0 to look without spending", n)
	}
	if err != nil {
		return fmt.Errorf("cost %w", err)
	}
	c.Cost = n
	return nil
}
