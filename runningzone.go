package slidingwindow

import (
	"cmp"
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/adminapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/dryrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func init() {
	caddy.RegisterModule(adminapi.New(evaluate))
}

// newRunningZone returns a zone of h for the registry and the admin API.
func (h *Handler) newRunningZone(z *liveZone) *running.ActiveZone {
	own, configured := *z, *z.Zone
	own.Zone, own.matchers, configured.MatcherSetsRaw = &configured, nil, nil // modules keep the context that they came with
	r := &running.ActiveZone{
		Configured: control.ZoneInfo{
			Name: own.Name, Store: h.store.Name(), Key: template.Short(own.Key), Algorithm: own.algorithmName(), OnError: h.OnError, TopTalkers: own.TopTalkers,
		},
		Key: own.c.Key, EmptyKey: unless(own.EmptyKey, emptyShared), Percent: own.c.Percent,
		Store: h.store, Share: h.Share,
		Control: own.control, Counters: own.counters.DecisionCounters, Recorder: own.recorder, Alerting: own.c.Alerting, Load: own.load, Top: own.top,
		Decider: decider{&own, h.mostBeside(z)},
	}
	for _, l := range own.Limits {
		p := l.plain()
		r.Configured.Limits = append(r.Configured.Limits, control.LimitInfo{Max: template.Short(string(p.Max)), Window: string(p.Window)})
	}
	r.InBook = &overridebook.Subscriber{
		Name: own.Name, Longest: own.c.Longest, Records: own.forOverrides, NotApplied: own.counters.Misfits,
		Orders: &own.control.Sync, ApplyRemote: r.ApplyRemote, InForce: own.overrides, LogsKeys: h.LogKey,
	}
	return r
}

// algorithmName returns the algorithm in the words of the configuration.
func (z *Zone) algorithmName() string {
	if z.Algorithm == nil {
		return window.Zset{}.Name()
	}
	return cmp.Or(z.Algorithm.Name, window.Zset{}.Name())
}

// decider implements running.Decider.
type decider struct {
	zone *liveZone
	most int64 // that other zones let it reserve
}

func (d decider) Charge(key string) (window.Charge, *overrides.Rule, running.Needs) {
	return d.zone.chargeWithout(key, d.most)
}

func (d decider) SourceOf(p window.Policy) string { return d.zone.sourceOf(p) }

func (d decider) Enforced() int64 { return d.zone.enforced() }

func (d decider) Enforce(o enforce.Order) error { return d.zone.setEnforce(o) }

// evaluate implements adminapi.Evaluate.
func evaluate(ctx context.Context, w *dryrun.Trace, handler caddyhttp.MiddlewareHandler, r *http.Request) (status int, passes, known bool, err error) {
	h, known := handler.(*Handler)
	if !known {
		return 0, false, false, nil
	}
	passes, err = (&tracedRequest{w, ctx}).limit(h, r)
	return h.Status, passes, true, err
}

// tracedRequest is a trace on which somebody asks what zones would decide.
type tracedRequest struct {
	*dryrun.Trace
	ctx context.Context // of who asks
}

// limit inspects the zones of h that count the request.
func (w *tracedRequest) limit(h *Handler, r *http.Request) (passes bool, err error) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	req := &request{repl: repl, vars: vars}
	var unknown []control.EvaluatedZone
	for _, z := range h.zones {
		if z.enforced() == enforce.Exempt {
			continue
		}
		w.NoteMissing()
		applies, err := z.applies(r)
		if err != nil {
			return false, err
		}
		key, empty := z.c.Key.Expand(vars, repl)
		c, rule := z.chargeUnder(key, repl)
		missing := w.Missing()
		switch {
		case !applies && missing == nil:
		case missing != nil:
			unknown = append(unknown, control.EvaluatedZone{Zone: z.Name, Unknown: missing, Shadow: z.enforced() == enforce.None})
		case empty && z.EmptyKey == emptySkip:
		case empty && z.EmptyKey == emptyDeny:
			shadow := !z.isKeyEnforced(req, z.enforced())
			w.Answer.Zones = append(w.Answer.Zones, control.EvaluatedZone{Zone: z.Name, EmptyKey: emptyDeny, Shadow: shadow})
			if shadow {
				continue
			}
			req.keyless = z
			req.publish()
			return false, nil
		case rule.Decides():
			i := h.newRunningZone(z).Overridden(&c, rule, running.Needs{})
			shadow := !z.isKeyEnforced(req, z.enforced())
			w.Answer.Zones = append(w.Answer.Zones, control.EvaluatedZone{Zone: z.Name, Shadow: shadow, Inspection: i})
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
func (w *tracedRequest) peek(h *Handler, req *request) error {
	req.reserve(nil, nil, h.mostReserved(req)) // the example has no body
	ds, by, cause, err := h.store.Peek(w.ctx, req.charges, h.OnError.Local(), h.Share)
	if err != nil {
		w.Failed = adminapi.Unavailable(h.newRunningZone(req.zones[0]), err)
		return w.Failed
	}
	req.decisions, req.allowed = ds, true
	for i, z := range req.zones {
		peek, shadow := running.Peek(h.store.Peek), !z.isKeyEnforced(req, z.enforced())
		if shadow {
			peek = h.store.PeekShadow
			own, _, _, err := peek(w.ctx, req.charges[i:i+1], h.OnError.Local(), h.Share)
			if err != nil {
				w.Failed = adminapi.Unavailable(h.newRunningZone(z), err)
				return w.Failed
			}
			copy(req.decisionsOf(i), own)
		} else if !window.Allowed(req.decisionsOf(i)) {
			req.allowed = false
		}
		r, c, ds := h.newRunningZone(z), &req.charges[i], req.decisionsOf(i)
		i := r.Inspection(c, req.ruleHere(z.Name), running.Needs{}, ds, r.Used(w.ctx, peek, c, ds), by, cause)
		w.Answer.Zones = append(w.Answer.Zones, control.EvaluatedZone{Zone: z.Name, Shadow: shadow, Inspection: i})
	}
	return nil
}
