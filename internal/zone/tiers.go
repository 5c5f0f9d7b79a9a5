package zone

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// widen makes the tiers of the zone. Each is the zone with limits, top talkers and an account of its own. The limit of
// requests at the same time comes first: its counter has the key of the zone.
func (z *Live) widen(o Options) (err error) {
	if z.Concurrent != nil {
		c := *z
		c.Settings, c.Wider, c.Load, c.Top, c.native = z.Concurrent, nil, nil, nil, nil
		if c.engine, err = c.Engine(c.Name, c.Algorithm); err != nil {
			return err
		}
		z.Wider = append(z.Wider, &c)
	}
	for _, settings := range z.Tiers {
		t := *z
		t.Settings, t.Wider = settings, nil
		if z.Top != nil {
			t.Top = toptalkers.Of(z.hold, o.Store.Raw, t.Tier)
			z.Running.TopOfTiers[t.Tier] = t.Top
		}
		if z.Load != nil {
			t.Load = load.LimitsOf(z.hold, *t.Scaling, t.PolicyName(), t.Algorithm, t.Policies)
		}
		if z.Settles() {
			t.Counters.Settled = z.Counters.Settled.OfTier(t.Top.Charged)
		}
		if t.engine, err = t.Engine(t.Name, t.Algorithm); err != nil {
			return err
		}
		z.Wider = append(z.Wider, &t)
	}
	return nil
}

// ChargeBeside returns what a request spends in the tier z that spends c in its zone, and the override of the network, or of the key. It
// reports false for a key that is no address, which has no network.
func (z *Live) ChargeBeside(c *window.Charge, repl *caddy.Replacer) (tier window.Charge, rule *overrides.Rule, ok bool) {
	if z.Held {
		tier, _ = z.charge(c.Key, repl)
		return tier, z.override(&tier), true
	}
	network, ok := z.Networks.NetworkOf(c.Key)
	if !ok {
		return tier, nil, false
	}
	tier, rule = z.chargeNetwork(network, c.Cost)
	tier.Fields = c.Fields
	return tier, rule, true
}

// chargeNetwork returns what a request of a cost spends on a network of the tier, and the override of the network.
func (z *Live) chargeNetwork(network string, cost int64) (c window.Charge, rule *overrides.Rule) {
	c = z.engine.Charge(network, cost)
	if z.Load != nil {
		c.Policies = z.Load.Now()
	}
	if rule = z.Overrides.RuleOfNetwork(network); rule.Decides() || z.apply(rule, &c) {
		return c, rule
	}
	return c, nil
}

// tierOf returns the tier of which a key is a network; nil for the keys of the zone itself.
func (z *Live) tierOf(key string) *Live {
	for _, t := range z.Wider {
		if !t.Held && t.Networks.HasNetwork(key) {
			return t
		}
	}
	return nil
}

// TierOf implements running.Decider.
func (z *Live) TierOf(key string) string {
	if t := z.tierOf(key); t != nil {
		return t.Tier
	}
	return ""
}

// InTiers implements running.Decider.
func (z *Live) InTiers(c *window.Charge) (all []running.TierCharge) {
	if z.tierOf(c.Key) != nil {
		return nil
	}
	for _, t := range z.Wider {
		if charge, rule, ok := t.ChargeBeside(c, caddy.NewReplacer()); ok {
			all = append(all, running.TierCharge{Charge: charge, Rule: rule})
		}
	}
	return all
}
