package zone

import (
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Enforced returns the percentage of keys whose requests the zone may deny now, [enforce.Exempt] or [enforce.Mark].
func (z *Live) Enforced() int64 {
	set := z.Control.Current()
	if set == nil || set.Percent != enforce.None && set.Percent != enforce.Exempt && z.checkPeers() != nil {
		return z.Percent
	}
	return set.Percent
}

// IsEnforced reports whether the zone, of which a percentage of keys is enforced, may deny a request.
func (z *Live) IsEnforced(percent int64, vars map[string]any, repl *caddy.Replacer) bool {
	key, _ := z.Key.Expand(vars, repl)
	return enforce.IsEnforced(z.Name, key, percent)
}

// ChargeOn returns what a request spends on a key, the override of the key, which is nil without one, and which options came out
// empty.
func (z *Live) ChargeOn(key string, repl *caddy.Replacer) (c window.Charge, rule *overrides.Rule, empty placeholders.EmptyOptions) {
	c, empty = z.charge(key, repl)
	return c, z.override(&c), empty
}

// charge returns what a request spends on a key without an override, and which options came out empty.
func (z *Live) charge(key string, repl *caddy.Replacer) (c window.Charge, empty placeholders.EmptyOptions) {
	own := z.engine
	if z.onServer() {
		own = z.native
	}
	c = own.Charge(key, z.Cost)
	switch {
	case z.Policies == nil:
		if c.Policies, empty = z.ExpandLimits(z.Limits, repl); z.Load != nil {
			z.Load.Scale(c.Policies)
		}
	case z.Load != nil:
		c.Policies = z.Load.Now()
	}
	if z.Spends.Dynamic {
		var none bool
		if c.Cost, none = z.ExpandCost(repl); none {
			empty |= placeholders.NoCost
		}
	}
	return c, empty
}

// override applies the override of its key to a charge, and returns the rule; nil if none holds.
func (z *Live) override(c *window.Charge) *overrides.Rule {
	rule := z.Overrides.Rule(c.Key)
	if rule.Decides() || z.apply(rule, c) {
		return rule
	}
	return nil
}

// apply gives a charge the limits of its rule, which may be nil, and the lookback that the overrides of its key
// need. It reports whether the limits are those of the rule.
func (z *Live) apply(rule *overrides.Rule, c *window.Charge) bool {
	if z.Held {
		return z.applyHeld(rule, c)
	}
	if c.Lease.Units > 0 && !z.Overrides.MayLease() {
		c.Lease = window.Lease{}
	}
	if back := z.Overrides.LookBack(c.Key); back > 0 {
		c.Lookback = max(c.Lookback, z.Longest, back)
	}
	if rule == nil || rule.Policies == nil && rule.Factor == 0 {
		return false
	}
	policies := rule.Policies
	if policies == nil || rule.Factor != 0 && z.Tier != "" { // a factor has those of the zone
		var err error
		if policies, err = z.Scale(c.Policies, rule.Factor); err != nil {
			z.Counters.Misfits.Inc()
			return false
		}
	}
	if !sameWindows(policies, c.Policies) {
		c.Lease = window.Lease{}
	}
	c.Algorithm, c.Policies, c.Lookback = z.Algorithm, policies, max(c.Lookback, z.Longest) // fitRule: a server never decides on native here
	return true
}

// applyHeld is apply for a limit of requests at the same time. Limits of a rule leave it as it is.
func (z *Live) applyHeld(rule *overrides.Rule, c *window.Charge) bool {
	switch {
	case rule == nil || rule.Concurrent == 0 && rule.Factor == 0:
		return false
	case rule.Concurrent > 0:
		c.Policies = []window.Policy{{Limit: rule.Concurrent, Window: c.Policies[0].Window}}
		return true
	}
	scaled, err := z.Scale(c.Policies, rule.Factor)
	if err != nil {
		z.Counters.Misfits.Inc()
		return false
	}
	c.Policies = scaled
	return true
}

func sameWindows(a, b []window.Policy) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p window.Policy) bool {
		return !slices.ContainsFunc(b, func(o window.Policy) bool { return o.Window == p.Window })
	})
}
