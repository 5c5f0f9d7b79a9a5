package zone

import (
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
)

// Enforce enforces the zone as an order says, wherever the zone is used in this process. The mode config goes back to
// the configuration.
func (z *Live) Enforce(o enforce.Order) error {
	if o.Mode == enforce.Config {
		z.Control.Reset()
		return nil
	}
	if o.Mode == "" {
		return fmt.Errorf("zone %s: enforce is missing; use one of on, shadow, mark, config, or a percentage such as 25%%", z.Name)
	}
	percent, err := z.CheckEnforce(o.Mode)
	if err == nil && percent != enforce.All && percent != enforce.Mark {
		err = z.Shared.CheckShadow()
	}
	if err == nil && percent != enforce.None {
		err = z.checkPeers()
	}
	if err != nil && o.All && o.Mode == control.EnforceShadow {
		percent, err = enforce.Exempt, nil
	}
	if err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.Control.Set(enforce.Setting{Percent: percent, Until: o.Until, Why: o.Why})
	return nil
}

// checkPeers reports why a zone that is configured as shadow cannot be enforced while Caddy runs.
// CL.THROTTLE decides on a request that one zone counts, and which zones those are is settled
// when the configuration loads.
func (z *Live) checkPeers() error {
	if z.Percent != enforce.None {
		return nil
	}
	for _, o := range z.Shared.peers {
		if o.onServer() {
			return fmt.Errorf("CL.THROTTLE may count zone %s, and decides on one zone at a time; change enforce in the configuration", o.Name)
		}
	}
	return nil
}
