package request

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// ban returns the ban that denies the request; nil if none does.
func (req *request) ban() *banbook.Ban {
	if req.overridden == nil {
		return nil
	}
	return req.overridden.ban
}

// bannedField returns a field of what a ban decides, as decisionField does.
func (req *request) bannedField(name string) (any, bool) {
	switch name {
	case "allowed":
		return false, true
	case "retry_after":
		return answer.RetryAfter(req.ban().Left, 0), true
	}
	return decisionField(nil, name)
}

// denyBanned denies a request whose key is banned in a zone. It reports whether that is so.
func (req *request) denyBanned(r *http.Request, z *zone.Live, key string) (bool, error) {
	ban, is := z.Bans.Ban(key, false)
	if !is {
		return false, nil
	}
	if spares, err := z.Ban.Spares(r); spares || err != nil {
		return false, err
	}
	req.denyBy(z, key)
	inForce := ban // &ban would put a Ban on the heap for each request
	req.overridden.ban = &inForce
	return true, nil
}

// denyBy notes that a zone denies the request, and charges nothing.
func (req *request) denyBy(z *zone.Live, key string) {
	if req.overridden == nil {
		req.overridden = new(overridden)
	}
	req.deniedBy, req.overridden.key = z, key
	req.zones, req.charges = nil, nil
}

// strike notes, in zones that ban, that their limits deny the request. A denial counts against the key if the key alone
// is to blame: not its network, not the load, not what other requests of the key reserve that are not answered yet, and not that this Caddy
// has only a share of the limit while the store is away. All requests without a key have one key.
func (h *Handler) strike(r *http.Request, req *request) {
	if !h.bans || req.allowed || req.deniedBy != nil || h.Share && req.origin == engine.InProcess {
		return
	}
	for i, z := range req.zones {
		if z.Ban == nil || z.Tier != "" || window.Allowed(req.ownDecisions(i)) || z.Load != nil && req.reducedIn(i) {
			continue
		}
		c := &req.charges[i]
		if _, empty := z.Key.Expand(req.vars, req.repl); empty || z.Settles() && req.unsettled {
			continue
		}
		spares, err := z.Ban.Spares(r)
		switch {
		case spares || err != nil:
		case z.Settles() && h.Store.IsRemote():
			h.strikeLater(z, c)
		default:
			z.Bans.Strike(c.Key, &z.Ban.Rule, false)
		}
	}
}

// untilAnswered is how long a request may take that other Caddys have let pass, and that has a unit until it is answered.
const untilAnswered = 2 * time.Second

// strikeLater notes a denial of a zone that settles, unless a request that is not answered yet turns out to be why, here or
// at another Caddy: then its unit is back later. A window that is short is not waited for.
func (h *Handler) strikeLater(z *zone.Live, c *window.Charge) {
	inFlight, charge, wait := h.Store.Settler.InFlight(), *c, untilAnswered
	for _, p := range c.Policies {
		wait = min(wait, p.Window/2)
	}
	z.Bans.StrikeLater(c.Key, &z.Ban.Rule, wait, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ds, _, _, err := h.Store.Peek(ctx, []window.Charge{charge}, h.OnError.Local() && !h.Share, false)
		return err == nil && !window.Allowed(ds) && !inFlight.Any(inFlight.Counter(&charge))
	})
}

// assessBan notes whether a zone that does not deny a request would deny it by a ban, and else whether a denial would count.
func (s *shadowed) assessBan(r *http.Request, empty bool) {
	spares, err := s.zone.Ban.Spares(r)
	s.strikes = !spares && err == nil && !empty
	if s.strikes {
		_, s.denied = s.zone.Bans.Ban(s.charge.Key, true)
	}
}

// strike notes that the zone would deny the request, if a limit that does not follow the load would.
func (s *shadowed) strike(ds []window.Decision) {
	own, limits := ds[:s.own()], ds[:len(s.charge.Policies)]
	if s.strikes && !window.Allowed(own) && (s.zone.Load == nil || !reduces(s.zone.Policies, &s.charge, slices.Clone(limits))) {
		s.zone.Bans.Strike(s.charge.Key, &s.zone.Ban.Rule, true)
	}
}
