package request

import (
	"cmp"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
)

// clientZones returns the zones whose keys tell clients apart, the most specific one first: the one whose
// limit is the lowest. A zone whose answers are timed counts many clients together, as a rule.
func clientZones(zones []*zone.Live) (all []clientZone) {
	for _, z := range zones {
		if z.Key.Placeholders == 0 || z.Load.Timed() {
			continue
		}
		empty, _ := z.Key.Expand(nil, caddy.NewEmptyReplacer())
		all = append(all, clientZone{z, empty})
	}
	slices.SortStableFunc(all, func(a, b clientZone) int { return cmp.Compare(a.zone.PerSecond(), b.zone.PerSecond()) })
	return all
}

// clientZone is a zone whose key tells clients apart.
type clientZone struct {
	zone  *zone.Live
	empty string // the key of requests without a value for it
}

// timedRequest is a request of a handler that times answers.
type timedRequest struct {
	*request
	clients []clientZone
}

// Client implements load.TimedRequest. It tells by the key of the most specific zone that counts the request, and by
// the address without such a zone.
func (req *timedRequest) Client() load.Client {
	for _, c := range req.clients {
		if key, ok := req.keyIn(c.zone); ok && key != c.empty {
			return load.ClientOf(key)
		}
	}
	address, _ := req.vars[caddyhttp.ClientIPVarKey].(string)
	return load.ClientAt(address)
}

// keyIn returns the key of the request in a zone. It reports false if the zone does not count it.
func (req *request) keyIn(z *zone.Live) (string, bool) {
	if i := slices.Index(req.zones, z); i >= 0 {
		return req.charges[i].Key, true
	}
	if req.marks != nil {
		if key, ok := req.marks.keyIn(z); ok {
			return key, true
		}
	}
	if req.shadows == nil {
		return "", false
	}
	for i := range *req.shadows {
		if s := &(*req.shadows)[i]; s.zone.Live == z && s.applies && !s.denied {
			return s.charge.Key, true
		}
	}
	return "", false
}

// TimedZone implements load.TimedRequest.
func (req *request) TimedZone(i int) *load.Controller {
	zones := req.zones
	if req.marks != nil && req.marks.allowed { // else the zone would not have let it pass
		zones = append(slices.Clip(zones), req.marks.zones...)
	}
	for _, z := range zones {
		if z.Load.Timed() && z.Tier == "" {
			if i == 0 {
				return z.Load.Controller
			}
			i--
		}
	}
	if req.shadows == nil {
		return nil
	}
	for j := range *req.shadows {
		if s := &(*req.shadows)[j]; s.applies && s.zone.Load.Timed() {
			if i == 0 {
				return s.zone.Load.Controller
			}
			i--
		}
	}
	return nil
}
