package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/routes"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// check reports what is wrong with the zone as configured. It compiles the zone.
func (z *Zone) check() error {
	if err := checkZoneName(z.Name); err != nil {
		return err
	}
	if err := z.checkUpTo(""); err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
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
		c.Configured.Limits = append(c.Configured.Limits, control.LimitInfo{Max: template.Short(string(p.Max)), Window: string(p.Window)})
	}
	switch {
	case z.CountIf != nil:
		c.Receipts = "count_if"
	case z.Settle != nil:
		c.Receipts = "settle"
	}
	return c
}

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

func checkMatch(z *Zone, _ *compiled.Settings) error {
	for _, set := range z.MatcherSetsRaw {
		if len(set) == 0 {
			return errors.New("match: no matcher, so every request would match; name one, or take match out")
		}
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			if matchesNothing(matcher, strings.TrimSpace(string(set[matcher]))) {
				return fmt.Errorf("match %s: there is nothing to match; write what, or take match out", matcher)
			}
		}
	}
	return checkMatcherNames(z)
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
func checkMatcherNames(z *Zone) error {
	for _, set := range z.MatcherSetsRaw {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			for _, name := range template.NamesInMatcher(set[matcher]) {
				if err := template.CheckKnown(name); err != nil {
					return fmt.Errorf("match %s: %w", matcher, err)
				}
			}
		}
	}
	return nil
}

func checkLimits(z *Zone, c *compiled.Settings) error {
	if len(z.Limits) == 0 {
		return errors.New("limit is missing: write limit <max> <window>")
	}
	windows := make(map[time.Duration]bool)
	for _, l := range z.Limits {
		limit, err := l.compile("limit")
		if err != nil {
			return err
		}
		if c.Limits = append(c.Limits, limit); limit.DynamicWindow() {
			continue
		}
		if windows[limit.Known.Window] {
			return fmt.Errorf("limit %s %s: another limit has the same window; keep the smaller one", l.Max, l.Window)
		}
		windows[limit.Known.Window], c.Longest = true, max(c.Longest, limit.Known.Window)
	}
	if !slices.ContainsFunc(z.Limits, Limit.dynamic) {
		for _, limit := range c.Limits {
			c.Policies = append(c.Policies, limit.Known)
		}
		c.Quotas = answer.NewQuotas(z.Name, c.Policies)
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

// warn logs what is most likely a mistake in the limits, but may be meant: overrides give some keys
// other ones.
func (z *Zone) warn(logger *zap.Logger) {
	if z.Fallback != nil && !slices.ContainsFunc(z.Limits, Limit.dynamic) {
		logger.Warn("fallback is never used: no limit has a placeholder; take fallback out", zap.String("zone", z.Name))
	}
	if z.Settle != nil { // which reserves the smallest limit at most
		return
	}
	for i, l := range z.Limits {
		if limit := &z.c.Limits[i]; !limit.DynamicMax() && limit.Known.Limit > 0 && z.c.Cost > limit.Known.Limit {
			logger.Warn("cost is above the limit, so that no request passes; raise the limit, or lower cost",
				zap.String("zone", z.Name), zap.Int64("cost", z.c.Cost), zap.String("limit", string(l.Max)+" "+string(l.Window)))
		}
	}
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
	if err := window.CheckPack(c.Algorithm, len(z.Limits), c.Pack); err != nil {
		return err
	}
	var known []window.Policy
	for i := range c.Limits {
		if l := &c.Limits[i]; !l.DynamicWindow() {
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
	c.Lease, err = z.Lease.engine(c.Algorithm)
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

func checkPrefix(field string, bits *int, most int) error {
	if bits != nil && (*bits < 0 || *bits > most) {
		return fmt.Errorf("%s %d: must be from 0 to %d", field, *bits, most)
	}
	return nil
}

// checkWord reports a field that has none of the words it can have.
func checkWord[T ~string](field string, value T, words ...T) error {
	if slices.Contains(words, value) {
		return nil
	}
	var all []string
	for _, word := range words {
		if word != "" {
			all = append(all, string(word))
		}
	}
	if cure := foreign.Cure(field, string(value)); cure != "" {
		return fmt.Errorf("%s %q is unknown; %s", field, value, cure)
	}
	return fmt.Errorf("%s %q is unknown; use one of %s", field, value, strings.Join(all, ", "))
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

// checkMatcher reports what is wrong with the response matcher of an option.
func checkMatcher(option string, m *caddyhttp.ResponseMatcher) error {
	if len(m.StatusCode) == 0 && len(m.Headers) == 0 {
		return fmt.Errorf("%[1]s: no condition, so that every answer would count; write status <code>... or header <field> <value>, or take %[1]s out", option)
	}
	if _, unnamed := m.Headers[""]; unnamed {
		return fmt.Errorf("%s: header: the name of the field is empty; write header <field> <value>", option)
	}
	for _, code := range m.StatusCode {
		if code < 1 || code > 9 && code < 100 || code > 999 {
			return fmt.Errorf("%s: status %d: must be a status code, or one digit for a class of them", option, code)
		}
	}
	return nil
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
	add("cost", template.Names(string(z.Cost)))
	if z.Algorithm != nil {
		for _, f := range z.Algorithm.Fields {
			add("fields", template.Names(f.Value))
		}
	}
	for _, set := range z.MatcherSetsRaw {
		for _, matcher := range slices.Sorted(maps.Keys(set)) {
			add("match", template.NamesInMatcher(set[matcher]))
		}
	}
	return uses
}

// provision loads the matchers of the zone, and logs what is most likely a mistake in it.
func (z *Zone) provision(ctx caddy.Context, use *zone.Shared) (matchers caddyhttp.MatcherSets, err error) {
	if !use.Warned {
		use.Warned = true
		placeholders.Warn(ctx, z.Name, z.Key, z.names(z.Key), z.isInHandler)
		z.warn(ctx.Logger())
	}
	routes.WarnOfPlace(ctx, z.Name, z.MatcherSetsRaw)
	if z.MatcherSetsRaw == nil {
		return nil, nil
	}
	loaded, err := ctx.LoadModule(z, "MatcherSetsRaw")
	if err != nil {
		return nil, fmt.Errorf("zone %s: loading matchers: %w", z.Name, err)
	}
	if err := matchers.FromInterface(loaded); err != nil {
		return nil, fmt.Errorf("zone %s: %w", z.Name, err)
	}
	return matchers, nil
}

// isInHandler reports whether a handler has a zone of the name, if it is one with zones.
func (z *Zone) isInHandler(handler caddyhttp.MiddlewareHandler) (has, known bool) {
	h, known := handler.(*Handler)
	return known && slices.ContainsFunc(h.Zones, func(o *Zone) bool { return o.Name == z.Name }), known
}
