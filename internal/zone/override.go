package zone

import (
	"errors"
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fitRule reports why the limits of a record cannot hold in the zone. The limits of a factor are known if those of the zone are.
func (z *Live) fitRule(r *overrides.Rule) error {
	if z.onServer() {
		return errors.New("limits: CL.THROTTLE may count the zone, and keeps its limits itself; send deny or exempt, or turn native off")
	}
	if r.Factor == 0 {
		if err := z.Fits(r.Policies); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
		return nil
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
	}
	switch {
	case z.Load.Scales(p):
		return control.SourceLoad
	case z.Policies == nil && p == z.Fallback:
		return control.SourceFallback
	}
	return control.SourceConfig
}
