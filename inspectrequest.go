package slidingwindow

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/walk"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// inspectRequest says which zones count an example of a request, and what they would decide.
func inspectRequest(ctx context.Context, example *control.Request) (int, any, error) {
	r, err := example.HTTP(context.Background()) // values of ctx are those of the admin endpoint
	if err != nil {
		return 0, nil, apiError(http.StatusBadRequest, err)
	}
	app, err := caddy.ActiveContext().AppIfConfigured("http")
	if err != nil {
		return 0, nil, apiError(http.StatusNotFound, errors.New("request: no HTTP server runs"))
	}
	w, err := walk.NewWalk(app.(*caddyhttp.App), example, r, func(w *walk.Walk, handler caddyhttp.MiddlewareHandler, r *http.Request) (status int, passes, known bool, err error) {
		h, known := handler.(*Handler)
		if !known {
			return 0, false, false, nil
		}
		passes, err = (&inspectedWalk{w, ctx}).limit(h, r)
		return h.Status, passes, true, err
	})
	if err != nil {
		return 0, nil, err
	}
	if err := w.Run(r); err != nil {
		return 0, nil, err
	}
	w.Answer.WouldPass = wouldPass(w.Answer.Zones)
	return http.StatusOK, &w.Answer, nil
}

// wouldPass reports whether all zones admit the request; nil if that is not known.
func wouldPass(zones []control.MetZone) *bool {
	passes, known := true, true
	for _, z := range zones {
		switch {
		case z.Shadow:
		case z.Unknown != nil:
			known = false
		case z.Inspection == nil || !z.WouldPass:
			passes = false
		}
	}
	if passes && !known {
		return nil
	}
	return &passes
}

// inspectedWalk is a walk on which somebody asks what zones would decide.
type inspectedWalk struct {
	*walk.Walk
	ctx context.Context // of who asks
}

// limit inspects the zones of h that count the request.
func (w *inspectedWalk) limit(h *Handler, r *http.Request) (passes bool, err error) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	req := &request{repl: repl, vars: vars}
	var unknown []control.MetZone
	for _, z := range h.Zones {
		w.NoteMissing()
		applies, err := z.applies(r)
		if err != nil {
			return false, err
		}
		key, empty := z.key.Expand(vars, repl)
		c, rule := z.chargeUnder(key, repl)
		missing := w.Missing()
		switch {
		case !applies && missing == nil:
		case missing != nil:
			unknown = append(unknown, control.MetZone{Zone: z.Name, Unknown: missing, Shadow: z.enforced() == enforce.None})
		case empty && z.EmptyKey == emptySkip:
		case empty && z.EmptyKey == emptyDeny:
			shadow := !z.isKeyEnforced(req, z.enforced())
			w.Answer.Zones = append(w.Answer.Zones, control.MetZone{Zone: z.Name, EmptyKey: emptyDeny, Shadow: shadow})
			if shadow {
				continue
			}
			req.keyless = z
			req.publish()
			return false, nil
		case rule.Decides():
			i := h.newRunningZone(z).decidedBy(&c, rule)
			shadow := !z.isKeyEnforced(req, z.enforced())
			w.Answer.Zones = append(w.Answer.Zones, control.MetZone{Zone: z.Name, Shadow: shadow, Inspection: i})
			if rule.Deny && shadow {
				continue
			}
			if req.noteOverride(z, key, rule); rule.Deny {
				req.publish()
				return false, nil
			}
		default:
			req.noteOverride(z, key, rule)
			req.zones, req.charges = append(req.zones, z), append(req.charges, c)
		}
	}
	if len(req.charges) > 0 {
		if err := w.peek(h, req); err != nil {
			return false, err
		}
		req.publish()
	}
	w.Answer.Zones = append(w.Answer.Zones, unknown...)
	return len(req.charges) == 0 || req.allowed, nil
}

// peek inspects the charges of a request.
func (w *inspectedWalk) peek(h *Handler, req *request) error {
	ds, by, cause, err := h.store.Peek(w.ctx, req.charges, h.OnError == onErrorLocal, h.Share)
	if err != nil {
		w.Failed = h.newRunningZone(req.zones[0]).unavailable(err)
		return w.Failed
	}
	req.decisions, req.allowed = ds, true
	for i, z := range req.zones {
		shadow := !z.isKeyEnforced(req, z.enforced())
		if shadow {
			own, _, _, err := h.store.PeekShadow(w.ctx, req.charges[i:i+1], h.OnError == onErrorLocal, h.Share)
			if err != nil {
				w.Failed = h.newRunningZone(z).unavailable(err)
				return w.Failed
			}
			copy(req.decisionsOf(i), own)
		} else if !window.Allowed(req.decisionsOf(i)) {
			req.allowed = false
		}
		running := h.newRunningZone(z)
		i := running.under(running.inspection(&req.charges[i], req.decisionsOf(i), by, cause), req.ruleHere(z.Name))
		w.Answer.Zones = append(w.Answer.Zones, control.MetZone{Zone: z.Name, Shadow: shadow, Inspection: i})
	}
	return nil
}
