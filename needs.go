package slidingwindow

import (
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// chargeWithout is chargeUnder without a request, of which other zones let the zone reserve most. It also returns what only
// a request tells.
func (z *liveZone) chargeWithout(key string, most int64) (window.Charge, *overrides.Rule, running.Needs) {
	repl := caddy.NewReplacer()
	c, _ := z.charge(key, repl)
	var needs running.Needs
	z.lookForLimits(&c, &needs, repl)
	rule := z.ruleOn(&c)
	if rule.Decides() || rule != nil && rule.Policies != nil {
		needs = running.Needs{}
	}
	switch {
	case rule.Decides():
	case needsRequest(string(z.Cost), repl):
		c.Cost, needs.Cost = 0, template.Short(string(z.Cost))
	case z.Settle == nil || c.Cost == 0:
	case z.estimates():
		c.Cost, needs.Cost = 1, control.CostOfBody
	case needs.Limits != nil && c.Cost > 1: // a limit may be lower
		c.Cost, needs.Cost = 1, string(z.Cost)
	default:
		z.Settle.reserve(nil, nil, &c, min(most, smallestOf(c.Policies)))
	}
	return c, rule, needs
}

// lookForLimits takes the limits that need a request out of a charge. In the place of each it gives the charge a policy
// that looks into the window of the limit, if it has none, and the window is known.
func (z *liveZone) lookForLimits(c *window.Charge, needs *running.Needs, repl *caddy.Replacer) {
	var known []compiled.LimitTemplate
	for i, l := range z.Limits {
		if !needsRequest(string(l.Max)+string(l.Window), repl) {
			known = append(known, z.c.Limits[i])
			continue
		}
		p := l.plain()
		limit := running.NeededLimit{LimitInfo: control.LimitInfo{Max: template.Short(string(p.Max)), Window: template.Short(string(p.Window))}}
		if !needsRequest(string(l.Window), repl) && !window.FactsOf(z.c.Algorithm).Bucket {
			limit.Window = z.c.Limits[i].Window(repl)
		}
		needs.Limits = append(needs.Limits, limit)
	}
	if needs.Limits == nil {
		return
	}
	c.Lease = window.Lease{}
	if c.Policies, _ = z.c.ExpandLimits(known, repl); z.load != nil {
		z.load.Scale(c.Policies)
	}
	for _, l := range needs.Limits {
		look := window.Policy{Limit: min(max(1, z.c.Fallback.Limit), window.MaxProduct/max(1, l.Window.Milliseconds())), Window: l.Window}
		has := slices.ContainsFunc(c.Policies, func(p window.Policy) bool { return p.Window == l.Window })
		if l.Window > 0 && !has && window.CheckPolicy(z.c.Algorithm, look) == nil {
			c.Policies, needs.Looks = append(c.Policies, look), needs.Looks+1
		}
	}
	if len(c.Policies) == 0 {
		c.Policies, needs.Looks = []window.Policy{z.c.Fallback}, 1 // a charge has a policy
	}
}

// needsRequest reports whether a text has a placeholder that has no value without a request.
func needsRequest(text string, repl *caddy.Replacer) bool {
	return slices.ContainsFunc(template.Names(text), func(name string) bool {
		_, ok := repl.Get(name)
		return !ok
	})
}
