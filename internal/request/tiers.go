package request

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// A zone with tiers has a charge for the key, and behind it one for each tier, all or nothing. req.zones has the tiers as
// zones of their own, which share with their zone what counts requests.

// addWider adds the charges in the tiers of a zone beside the one of the zone. It reports whether the override of a network denies
// the request.
func (req *request) addWider(z *zone.Live, c *window.Charge) (denied bool) {
	for _, t := range z.Wider {
		wide, rule, ok := t.ChargeBeside(c, req.repl)
		if !ok {
			continue
		}
		if req.noteOverride(t, wide.Key, rule) {
			if rule.Deny {
				return true
			}
			continue
		}
		req.zones, req.charges = append(req.zones, t), append(req.charges, wide)
	}
	return false
}

// chargeWith returns the place of the charge with a decision, counted from charge i on, and which of its policies it is on.
func (req *request) chargeWith(decision, i int) (charge, policy int) {
	for ; decision >= len(req.charges[i].Policies); i++ {
		decision -= len(req.charges[i].Policies)
	}
	return i, decision
}

// denierFrom returns the first charge that was denied, from charge i on.
func (req *request) denierFrom(i int) *window.Charge {
	for window.Allowed(req.decisionsOf(i)) {
		i++
	}
	return &req.charges[i]
}

// own returns how many decisions are on the key of the zone: on its limits, and on its requests at the same time.
func (s *shadowed) own() int {
	if len(s.wider) > 0 && s.wider[0].tier.Held {
		return len(s.charge.Policies) + 1
	}
	return len(s.charge.Policies)
}

// wider is the charge of a request in a tier of a zone that does not deny it.
type wider struct {
	tier *zone.Live
	window.Charge
}

// addWider adds the charges in the tiers of the zone to the one that s has. It reports whether an override denies a network.
func (s *shadowed) addWider(repl *caddy.Replacer) (denied bool) {
	for _, t := range s.zone.Wider {
		c, rule, ok := t.ChargeBeside(&s.charge, repl)
		switch {
		case !ok:
		case rule.Decides():
			denied = denied || rule.Deny
		default:
			s.wider = append(s.wider, wider{t, c})
		}
	}
	return denied
}
