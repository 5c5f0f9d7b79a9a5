package zone

import (
	"errors"
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fitRule reports why the limits of a record cannot hold in the zone. The limits of a factor are known if those of the zone are.
func (z *Live) fitRule(r *overrides.Rule) error {
	if err := z.fitConcurrent(r); err != nil || r.Policies == nil && r.Factor == 0 {
		return err
	}
	if z.onServer() {
		return errors.New("limits: CL.THROTTLE may count the zone, and keeps its limits itself; send deny or exempt, or turn native off")
	}
	if r.Factor == 0 {
		if err := z.Fits(r.Policies); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		return nil
	}
	if c := z.Concurrent; c != nil {
		if _, err := c.Scale(c.Policies, r.Factor); err != nil {
			return fmt.Errorf("factor: concurrent: %w", err)
		}
	}
	for _, t := range z.Tiers {
		if _, err := t.Scale(t.Policies, r.Factor); err != nil {
			return fmt.Errorf("factor: tier %s: %w", t.Tier, err)
		}
	}
	if z.Policies == nil {
		return nil
	}
	scaled, err := z.Scale(z.Policies, r.Factor)
	if err != nil {
		return fmt.Errorf("factor: %w", err)
	}
	if z.Load == nil { // else the factor multiplies what the load leaves
		r.Policies = scaled
	}
	return nil
}

// fitConcurrent reports why what a record says of requests at the same time, or of limits beside them, cannot hold in the zone.
func (z *Live) fitConcurrent(r *overrides.Rule) error {
	c := z.Concurrent
	if z.Held {
		c = z.Settings
	}
	switch {
	case r.Policies != nil && z.Held:
		return errors.New("limits: the zone has no limit, only concurrent; send concurrent, or write a limit in the zone")
	case r.Concurrent == 0:
		return nil
	case c == nil:
		return errors.New("concurrent: the zone has no concurrent; send limits, or write concurrent in the zone")
	}
	if err := c.Fits([]window.Policy{{Limit: r.Concurrent, Window: c.Longest}}); err != nil {
		return fmt.Errorf("concurrent: %w", err)
	}
	return nil
}

// forOverrides returns what records have to fit.
func (z *Live) forOverrides(hasher overrides.Hasher) overrides.Target {
	return overrides.Target{
		Name: z.Name,
		KeyOf: func(values []string) (string, error) {
			key, _, err := z.Key.KeyOf(values)
			return key, err
		},
		FoldPattern: func(literal string) string {
			if z.Key.FoldCase || z.Key.Spelling.IsHost() { // paths keep theirs
				return normalize.Fold(literal)
			}
			return literal
		},
		Single:     z.Key.Single != "",
		IPv4Prefix: z.Key.Prefixes.V4, IPv6Prefix: z.Key.Prefixes.V6,
		Hasher: hasher, Fit: z.fitRule,
	}
}

// SourceOf returns where a limit of a charge comes from that no override has changed.
func (z *Live) SourceOf(c *window.Charge, p window.Policy) string {
	if t := z.tierOf(c.Key); t != nil {
		z = t
	} else if z.Concurrent != nil && engine.IsHeld(c) {
		z = z.Wider[0]
	}
	switch {
	case z.Load.Scales(p):
		return control.SourceLoad
	case z.Policies == nil && p == z.Fallback:
		return control.SourceFallback
	}
	return control.SourceConfig
}
