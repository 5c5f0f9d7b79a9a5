package request

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/adminapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/dryrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// tracedRequest is a trace that asks what zones would decide.
type tracedRequest struct {
	*dryrun.Trace
	ctx context.Context // of who asks
}

// Inspect says in the answer of a trace what the zones would decide on a request that comes by. ctx is that of who asks.
func (h *Handler) Inspect(ctx context.Context, w *dryrun.Trace, r *http.Request) (passes bool, err error) {
	return (&tracedRequest{w, ctx}).limit(h, r)
}

// limit inspects the zones of h that count the request.
func (w *tracedRequest) limit(h *Handler, r *http.Request) (passes bool, err error) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	req := &request{repl: repl, vars: vars}
	var unknown []control.EvaluatedZone
	for i := range h.zones {
		z := &h.zones[i]
		if z.Enforced() == enforce.Exempt {
			continue
		}
		w.NoteMissing()
		applies, err := z.applies(r)
		if err != nil {
			return false, err
		}
		key, empty := z.Key.Expand(vars, repl)
		c, rule, _ := z.ChargeOn(key, repl)
		for _, t := range z.InTiers(&c) {
			if !rule.Decides() && t.Rule.Decides() && t.Rule.Deny {
				c, rule = t.Charge, t.Rule
			}
		}
		missing := w.Missing()
		switch {
		case !applies && missing == nil:
		case missing != nil:
			unknown = append(unknown, control.EvaluatedZone{Zone: z.Name, Unknown: missing, Shadow: z.Enforced() == enforce.None || z.Enforced() == enforce.Mark})
		case empty && z.EmptyKey == compiled.EmptySkip:
		case empty && z.EmptyKey == compiled.EmptyDeny:
			shadow := !z.IsEnforced(z.Enforced(), req.vars, req.repl)
			w.Answer.Zones = append(w.Answer.Zones, control.EvaluatedZone{Zone: z.Name, EmptyKey: compiled.EmptyDeny, Shadow: shadow})
			if shadow {
				continue
			}
			req.deniedBy = z.Live
			req.publish()
			return false, nil
		case rule.Decides():
			i := z.Running.Overridden(&c, rule, running.Needs{})
			shadow := !z.IsEnforced(z.Enforced(), req.vars, req.repl)
			w.Answer.Zones = append(w.Answer.Zones, control.EvaluatedZone{Zone: z.Name, Shadow: shadow, Inspection: i})
			if rule.Deny && shadow {
				continue
			}
			if req.noteOverride(z.Live, c.Key, rule); rule.Deny {
				req.publish()
				return false, nil
			}
		default:
			req.noteOverride(z.Live, key, rule)
			req.zones, req.charges = append(req.zones, z.Live), append(req.charges, c)
			req.addWider(z.Live, &c)
		}
	}
	if len(req.charges) > 0 {
		if err := w.peek(h, r, req); err != nil {
			return false, err
		}
		req.publish()
	}
	w.Answer.Zones = append(w.Answer.Zones, unknown...)
	return len(req.charges) == 0 || req.allowed, nil
}

// peek inspects the charges of a request.
func (w *tracedRequest) peek(h *Handler, r *http.Request, req *request) error {
	req.reserve(nil, nil, h.mostReserved(req)) // the example has no body
	ds, by, cause, err := h.Store.Peek(w.ctx, req.charges, h.OnError.Local(), h.Share)
	if err != nil {
		w.Failed = adminapi.Unavailable(req.zones[0].Running, err)
		return w.Failed
	}
	req.decisions, req.allowed = ds, true
	for i, z := range req.zones {
		peek, shadow := running.Peek(h.Store.Peek), !z.IsEnforced(z.Enforced(), req.vars, req.repl)
		if shadow {
			if z.Enforced() != enforce.Mark {
				peek = h.Store.PeekShadow
			}
			own, _, _, err := peek(w.ctx, req.charges[i:i+1], h.OnError.Local(), h.Share)
			if err != nil {
				w.Failed = adminapi.Unavailable(z.Running, err)
				return w.Failed
			}
			copy(req.decisionsOf(i), own)
		} else if !window.Allowed(req.decisionsOf(i)) {
			req.allowed = false
		}
		c, ds := &req.charges[i], req.decisionsOf(i)
		i := z.Running.Inspection(w.ctx, c, req.ruleIn(z), running.Needs{}, ds, z.Running.Used(w.ctx, peek, c, ds), by, cause)
		for _, t := range z.InTiers(c) {
			if t.Rule.Decides() {
				i.AddTier(z.Running.Overridden(&t.Charge, t.Rule, running.Needs{}))
			}
		}
		if z.Tier != "" {
			w.Answer.Zones[len(w.Answer.Zones)-1].AddTier(i)
			continue
		}
		if z.Ban != nil {
			if spares, err := z.Ban.Spares(r); err != nil {
				return err
			} else if !spares {
				z.Running.NoteBan(i)
			}
			req.allowed = req.allowed && (shadow || i.Ban == nil)
		}
		w.Answer.Zones = append(w.Answer.Zones, control.EvaluatedZone{Zone: z.Name, Shadow: shadow, Inspection: i})
	}
	return nil
}
