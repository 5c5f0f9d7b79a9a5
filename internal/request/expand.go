package request

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// expand collects the charges of the zones that apply: of those that mark requests, or of the others. With an error, the request
// names the zone as the one that denies.
func (h *Handler) expand(r *http.Request, marks bool) (*request, error) {
	ctx := r.Context()
	req := h.emptyRequest()
	req.repl = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	req.vars, _ = ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	for i := range h.zones {
		z := &h.zones[i]
		percent := z.Enforced()
		switch {
		case percent == enforce.Exempt:
			continue
		case marks != (percent == enforce.Mark):
			req.isMarked = req.isMarked || !marks
			continue
		case percent == enforce.None:
			req.addShadow(h, z)
			continue
		}
		applies, err := z.applies(r)
		if !marks && percent != enforce.All && (applies || err != nil) && !z.IsEnforced(percent, req.vars, req.repl) {
			h.assess(req.addShadow(h, z), req, r, applies, err)
			continue
		}
		if err != nil {
			req.deniedBy, req.zones, req.charges = z.Live, nil, nil
			return req, err
		}
		if !applies || z.Settle != nil && req.chargedBefore(z.Live) {
			continue
		}
		key, empty := z.Key.Expand(req.vars, req.repl)
		if empty {
			z.Empty.Note(h.Logger, placeholders.NoKey, req.vars, req.repl)
		}
		if empty && z.EmptyKey == compiled.EmptySkip {
			continue
		}
		if empty && z.EmptyKey == compiled.EmptyDeny {
			req.deniedBy = z.Live
			req.zones, req.charges = nil, nil
			break
		}
		c, rule := h.charge(z.Live, key, req)
		if req.noteOverride(z.Live, key, rule) {
			if rule.Deny {
				break
			}
			continue
		}
		if z.Ban != nil {
			banned, err := req.denyBanned(r, z.Live, key)
			if err != nil {
				req.deniedBy, req.zones, req.charges = z.Live, nil, nil
				return req, err
			}
			if banned {
				break
			}
		}
		req.zones = append(req.zones, z.Live)
		req.charges = append(req.charges, c)
		if z.Wider != nil && req.addWider(z.Live, &c) {
			break
		}
	}
	return req, nil
}

// charge returns what the request spends on a key of a zone, and the override of the key; nil without one.
func (h *Handler) charge(z *zone.Live, key string, req *request) (window.Charge, *overrides.Rule) {
	c, rule, none := z.ChargeOn(key, req.repl)
	if none != 0 {
		z.Empty.Note(h.Logger, none, req.vars, req.repl)
	}
	c.Fields = z.Notes.Expand(req.vars, req.repl)
	return c, rule
}

// noteOverride notes the rule of a key in a zone. It reports whether the zone charges nothing, as the
// rule exempts the key or denies it; the rule then decides.
func (req *request) noteOverride(z *zone.Live, key string, rule *overrides.Rule) (decided bool) {
	if rule == nil {
		return false
	}
	if req.overridden == nil {
		req.overridden = new(overridden)
	}
	req.overridden.rules = append(req.overridden.rules, zoneRule{z, rule})
	if rule.Deny {
		req.denyBy(z, key)
		req.overridden.denies = rule
	}
	return rule.Decides()
}

// chargedBefore reports whether an earlier handler has charged the request in a zone.
func (req *request) chargedBefore(z *zone.Live) bool {
	last, _ := req.vars[requestVar].(*request)
	for earlier := range last.each {
		if earlier.allowed && earlier.decisions != nil && slices.ContainsFunc(earlier.zones, func(other *zone.Live) bool { return other.Shared == z.Shared }) {
			return true
		}
	}
	return false
}

// addShadow notes that a zone does not deny the request.
func (req *request) addShadow(h *Handler, z *counted) *shadowed {
	if req.shadows == nil {
		shadows := make([]shadowed, 0, len(h.zones)) // they never move
		req.shadows = &shadows
	}
	*req.shadows = append(*req.shadows, shadowed{Options: &h.Options, zone: z})
	return &(*req.shadows)[len(*req.shadows)-1]
}

// assess finds out what a request spends in a zone that does not deny it, and whether the zone
// would deny it for want of a key, or fail.
func (h *Handler) assess(s *shadowed, view *request, r *http.Request, applies bool, err error) {
	z := s.zone
	s.assessed = true
	if err != nil {
		z.Control.Shadow().FailedClosed.Count(z.Cost)
		if c := h.Logger.Check(zap.DebugLevel, "matcher of a shadow zone failed"); c != nil {
			c.Write(zap.String("zone", z.Name), zap.Error(err))
		}
		return
	}
	if !applies {
		return
	}
	key, empty := z.Key.Expand(view.vars, view.repl)
	if empty {
		z.Empty.Note(h.Logger, placeholders.NoKey, view.vars, view.repl)
	}
	switch {
	case empty && z.EmptyKey == compiled.EmptySkip:
	case empty && z.EmptyKey == compiled.EmptyDeny:
		s.applies, s.denied = true, true
		z.Control.Shadow().Denied.Count(z.Cost)
		z.Top.Denied("")
	default:
		h.assessKey(s, key, view)
		if s.applies && !s.denied && z.Ban != nil {
			s.assessBan(r, empty)
		}
		if s.denied {
			z.Control.Shadow().Denied.Count(z.Cost)
			z.Top.Denied(key)
		}
	}
}

// assessKey is assess for a key that is counted, or has an override.
func (h *Handler) assessKey(s *shadowed, key string, view *request) {
	s.charge, s.rule = h.charge(s.zone.Live, key, view)
	s.charge.Lease = window.Lease{} // batches ask the store as seldom
	s.applies, s.denied = s.rule == nil || !s.rule.Exempt, s.rule != nil && s.rule.Deny
	if s.applies && !s.denied {
		s.denied = s.addWider(view.repl)
	}
}
