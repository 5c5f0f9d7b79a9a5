package zone

import (
	"math"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Charge implements running.Decider. It is ChargeOn without a request, of which other zones let the zone reserve most.
func (z *Live) Charge(key string) (window.Charge, *overrides.Rule, running.Needs) {
	repl := caddy.NewReplacer()
	c, _ := z.charge(key, repl)
	var needs running.Needs
	var rule *overrides.Rule
	if t := z.tierOf(key); t != nil {
		c, rule = t.chargeNetwork(key, c.Cost)
	} else {
		z.lookForLimits(&c, &needs, repl)
		rule = z.override(&c)
	}
	if rule.Decides() || rule != nil && (rule.Policies != nil || z.Held && rule.Concurrent > 0) {
		needs = running.Needs{}
	}
	switch {
	case rule.Decides():
	case z.Spends.Needs(repl):
		c.Cost, needs.Cost = 0, template.Short(z.Spends.String())
	case z.Settle == nil || c.Cost == 0:
	case z.Estimates():
		c.Cost, needs.Cost = 1, control.CostOfBody
	case needs.Limits != nil && c.Cost > 1: // a limit may be lower
		c.Cost, needs.Cost = 1, z.Spends.String()
	default:
		most := min(z.most, Smallest(c.Policies))
		for _, t := range z.InTiers(&c) {
			if !engine.IsHeld(&t.Charge) {
				most = min(most, Smallest(t.Policies))
			}
		}
		z.Settle.Reserve(nil, nil, &c, most)
	}
	return c, rule, needs
}

// lookForLimits takes the limits that need a request out of a charge. In the place of each it gives the charge a policy
// that looks into the window of the limit, if it has none, and the window is known.
func (z *Live) lookForLimits(c *window.Charge, needs *running.Needs, repl *caddy.Replacer) {
	var known []compiled.LimitTemplate
	for i, l := range z.Limits {
		if !l.Needs(repl) {
			known = append(known, l)
			continue
		}
		limit := running.NeededLimit{LimitInfo: z.Configured.Limits[i]}
		limit.LimitInfo.Window = template.Short(limit.LimitInfo.Window)
		if !window.FactsOf(z.Algorithm).Bucket {
			limit.Window = l.WindowWithout(repl)
		}
		needs.Limits = append(needs.Limits, limit)
	}
	if needs.Limits == nil {
		return
	}
	c.Lease = window.Lease{}
	if c.Policies, _ = z.ExpandLimits(known, repl); z.Load != nil {
		z.Load.Scale(c.Policies)
	}
	for _, l := range needs.Limits {
		look := window.Policy{Limit: min(max(1, z.Fallback.Limit), window.MaxProduct/max(1, l.Window.Milliseconds())), Window: l.Window}
		has := slices.ContainsFunc(c.Policies, func(p window.Policy) bool { return p.Window == l.Window })
		if l.Window > 0 && !has && window.CheckPolicy(z.Algorithm, look) == nil {
			c.Policies, needs.Looks = append(c.Policies, look), needs.Looks+1
		}
	}
	if len(c.Policies) == 0 {
		c.Policies, needs.Looks = []window.Policy{z.Fallback}, 1 // a charge has a policy
	}
}

// MostOf returns the most that a request may reserve, by the configured limits of the zones with settle for which
// counts returns true.
func MostOf(zones []*Live, counts func(*Live) bool) int64 {
	most := int64(math.MaxInt64)
	for _, z := range zones {
		if z.Settle != nil && counts(z) {
			most = min(most, z.SmallestLimit())
		}
	}
	return most
}

// Smallest returns the smallest limit of policies.
func Smallest(policies []window.Policy) int64 {
	smallest := int64(math.MaxInt64)
	for _, p := range policies {
		smallest = min(smallest, p.Limit)
	}
	return smallest
}
