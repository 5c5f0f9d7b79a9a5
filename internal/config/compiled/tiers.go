package compiled

import (
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// AddTier adds a tier without limits. Networks must be wider than those of the tiers before.
func (z *Settings) AddTier(networks template.Prefixes) *Settings {
	t := &Settings{Tier: networks.String(), Networks: networks}
	z.Tiers = append(z.Tiers, t)
	return t
}

// CompleteTiers gives the tiers what they have in common with the zone, of which all else must be known.
func (z *Settings) CompleteTiers() {
	for i, t := range z.Tiers {
		all := *z
		all.Tier, all.Networks, all.Tiers = t.Tier, t.Networks, nil
		all.Limits, all.Policies, all.Longest, all.Fallback, all.Native = t.Limits, t.Policies, t.Longest, window.Policy{}, window.GCRA{}
		all.Quotas = answer.NewQuotas(all.PolicyName(), all.Policies)
		z.Tiers[i] = &all
	}
}

// AllLimits returns the limits of the zone and of its tiers, in the order in which they are written.
func (z *Settings) AllLimits() []LimitTemplate {
	all := slices.Clip(z.Limits)
	for _, t := range z.Tiers {
		all = append(all, t.Limits...)
	}
	return all
}

// ShortestLookback returns the least that Longest is, of the zone and its tiers.
func (z *Settings) ShortestLookback() time.Duration {
	shortest := z.Longest
	for _, t := range z.Tiers {
		shortest = min(shortest, t.Longest)
	}
	return shortest
}

// PolicyName returns the name from which RateLimit fields make those of the policies.
func (z *Settings) PolicyName() string {
	if z.Tier == "" {
		return z.Name
	}
	return z.Name + ":" + z.Tier
}
