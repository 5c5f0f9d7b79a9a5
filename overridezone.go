package slidingwindow

import (
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// override gives a charge the limits of its rule, which may be nil, and has it look back as far as the overrides of its key
// do. It reports whether the limits are those of the rule.
func (z *liveZone) override(c *window.Charge, rule *overrides.Rule) bool {
	if c.Lease.Units > 0 && !z.overrides.MayLease() {
		c.Lease = window.Lease{}
	}
	if back := z.overrides.LookBack(c.Key); back > 0 {
		c.Lookback = max(c.Lookback, z.c.Longest, back)
	}
	if rule == nil {
		return false
	}
	policies := rule.Policies
	if policies == nil {
		var err error
		if policies, err = z.c.Scale(c.Policies, rule.Factor); err != nil {
			z.counters.Misfits.Inc()
			return false
		}
	}
	if !sameWindows(policies, c.Policies) {
		c.Lease = window.Lease{}
	}
	c.Algorithm, c.Policies, c.Lookback = z.c.Algorithm, policies, max(c.Lookback, z.c.Longest) // fitRule: a server never decides on native here
	return true
}

func sameWindows(a, b []window.Policy) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p window.Policy) bool {
		return !slices.ContainsFunc(b, func(o window.Policy) bool { return o.Window == p.Window })
	})
}

// fitRule reports why the limits of a record cannot hold in the zone. The limits of a factor are known if those of the zone are.
func (z *liveZone) fitRule(r *overrides.Rule) error {
	if z.onServer() {
		return errors.New("limits: CL.THROTTLE may count the zone, and keeps its limits itself; send deny or exempt, or turn native off")
	}
	if r.Factor == 0 {
		if err := z.c.Fits(r.Policies); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		return nil
	}
	if z.c.Policies == nil {
		return nil
	}
	scaled, err := z.c.Scale(z.c.Policies, r.Factor)
	if err != nil {
		return fmt.Errorf("factor: %w", err)
	}
	if z.load == nil { // else the factor multiplies what the load leaves
		r.Policies = scaled
	}
	return nil
}

// forOverrides returns what records have to fit.
func (z *liveZone) forOverrides(hasher overrides.Hasher) overrides.Target {
	return overrides.Target{
		Name: z.Name,
		KeyOf: func(values []string) (string, error) {
			key, _, err := z.c.Key.KeyOf(values)
			return key, err
		},
		FoldPattern: func(literal string) string {
			if z.FoldCase || z.c.Key.Spelling.IsHost() { // paths keep theirs
				return normalize.Fold(literal)
			}
			return literal
		},
		Single:     z.c.Key.Single != "",
		IPv4Prefix: z.c.Key.Prefixes.V4, IPv6Prefix: z.c.Key.Prefixes.V6,
		Hasher: hasher, Fit: z.fitRule,
	}
}

// noteOverride notes the rule of a key in a zone. It reports whether the zone charges nothing, as the
// rule exempts the key or denies it; the rule then decides.
func (req *request) noteOverride(z *liveZone, key string, rule *overrides.Rule) (decided bool) {
	if rule == nil {
		return false
	}
	if req.overridden == nil {
		req.overridden = new(overridden)
	}
	req.overridden.rules = append(req.overridden.rules, zoneRule{z, rule})
	if rule.Deny {
		req.keyless, req.overridden.denies, req.overridden.key = z, rule, key
		req.zones, req.charges = nil, nil
	}
	return rule.Decides()
}

// overridden has the overrides of a request in one handler.
type overridden struct {
	rules  []zoneRule
	denies *overrides.Rule // of the zone request.keyless; nil if none denies
	key    string          // that it denies
}

type zoneRule struct {
	zone *liveZone
	*overrides.Rule
}

// ruleHere returns the override of the request in a zone of this handler; nil without one.
func (req *request) ruleHere(zone string) *overrides.Rule {
	if req.overridden != nil {
		for _, r := range req.overridden.rules {
			if r.zone.Name == zone {
				return r.Rule
			}
		}
	}
	if s := req.shadowOf(zone); s != nil {
		return s.rule
	}
	return nil
}

// denyingRule returns the override that denies the request; nil if none does.
func (req *request) denyingRule() *overrides.Rule {
	if req.overridden == nil {
		return nil
	}
	return req.overridden.denies
}

// source returns where the tightest limit of a zone comes from that counts the request, or what decides in
// place of one; empty if no zone of that name does.
func (req *request) source(zone string) any {
	for ; req != nil; req = req.previous {
		if rule := req.ruleHere(zone); rule != nil {
			return control.SourceOverride
		}
		for i, z := range req.zones {
			if z.Name != zone {
				continue
			}
			if len(req.decisions) == 0 {
				return control.SourceConfig
			}
			return z.sourceOf(req.charges[i].Policies[answer.Tightest(req.decisionsOf(i))])
		}
		if req.keyless != nil && req.keyless.Name == zone || req.shadowOf(zone) != nil {
			return control.SourceConfig
		}
	}
	return ""
}

// sourceOf returns where a limit comes from that no override has changed.
func (z *liveZone) sourceOf(p window.Policy) string {
	switch {
	case z.load.Scales(p):
		return control.SourceLoad
	case z.c.Policies == nil && p == z.c.Fallback:
		return control.SourceFallback
	}
	return control.SourceConfig
}

// overrideOf returns the ID of the override of the request in a zone; empty without one.
func (req *request) overrideOf(zone string) any {
	for ; req != nil; req = req.previous {
		if rule := req.ruleHere(zone); rule != nil {
			return rule.ID
		}
	}
	return ""
}

// override returns the ID of the override that decided in the zone with the tightest limit, or of the
// first one if all zones are exempt; empty without one.
func (req *request) override() any {
	zone := req.tightestZone()
	if zone == "" && req.overridden != nil {
		zone = req.overridden.rules[0].zone.Name
	}
	if rule := req.ruleHere(zone); rule != nil {
		return rule.ID
	}
	return ""
}

// chargeUnder is Zone.charge for the override of the key, which may be nil.
func (z *liveZone) chargeUnder(key string, repl *caddy.Replacer) (window.Charge, *overrides.Rule) {
	c, _ := z.charge(key, repl)
	return c, z.ruleOn(&c)
}

// ruleOn has the override of the key of a charge change it, and returns its rule; nil if none holds.
func (z *liveZone) ruleOn(c *window.Charge) *overrides.Rule {
	rule := z.overrides.Rule(c.Key)
	if rule.Decides() || z.override(c, rule) {
		return rule
	}
	return nil
}
