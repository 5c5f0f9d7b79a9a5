package slidingwindow

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// request is one request in one handler: what it wants to spend, and what was
// decided. It lives as long as the request, for placeholders that are read later.
type request struct {
	zones     []*liveZone // one per charge
	charges   []window.Charge
	decisions []window.Decision // one per policy; empty, with room for them, if nothing was decided
	allowed   bool
	// Whether the fields of the response held what this request announced and what
	// earlier handlers did, and nothing else.
	announced bool
	place     engine.Origin // where it was, if it was
	unsure    bool          // in this process, and perhaps in the store
	// The zone that denies for want of a key, or by an override; the store was not asked then.
	keyless *liveZone
	// Overrides of the request's keys; nil without any.
	overridden *overridden
	// The value of Retry-After; 0 for none.
	retryAfter int64
	// The request in zones that do not deny it; nil without such zones.
	shadows *[]shadowed
	// What an earlier handler decided on the same request.
	previous *request

	// The request's replacer and variables; looking them up takes time.
	repl *caddy.Replacer
	vars map[string]any

	// Room for the first lines of RateLimit-Policy and RateLimit.
	lines answer.Lines
}

// What most handlers need for a request, in one piece of memory, as each piece and each
// byte costs every request: one zone with one limit, or two of these.
type (
	requestOfOne struct {
		request
		zoneRoom     [1]*liveZone
		chargeRoom   [1]window.Charge
		decisionRoom [1]window.Decision
	}
	requestOfTwo struct {
		request
		zoneRoom     [2]*liveZone
		chargeRoom   [2]window.Charge
		decisionRoom [2]window.Decision
	}
)

// emptyRequest returns a request with room for what the zones will say of it.
func (h *Handler) emptyRequest() *request {
	if len(h.zones) == 1 && len(h.Zones[0].Limits) == 1 {
		req := new(requestOfOne)
		req.zones, req.charges, req.decisions = req.zoneRoom[:0], req.chargeRoom[:0], req.decisionRoom[:0]
		return &req.request
	}
	req := new(requestOfTwo)
	req.zones, req.charges, req.decisions = req.zoneRoom[:0], req.chargeRoom[:0], req.decisionRoom[:0]
	return &req.request
}

// requestVar is the variable of the HTTP request that holds the *request of the
// last handler that it came by. A placeholder ends at a brace, so that none has this
// name, and no variable of an operator's is likely to.
const requestVar = "sliding_window}"

// newRequest collects the charges of the zones that apply.
func (h *Handler) newRequest(r *http.Request) (*request, error) {
	ctx := r.Context()
	req := h.emptyRequest()
	req.repl = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	req.vars, _ = ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	for _, z := range h.zones {
		percent := z.enforced()
		switch percent {
		case enforce.Exempt:
			continue
		case enforce.None:
			req.addShadow(h, z)
			continue
		}
		applies, err := z.applies(r)
		if percent != enforce.All && (applies || err != nil) && !z.isKeyEnforced(req, percent) {
			h.assess(req.addShadow(h, z), req, applies, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if !applies || z.Settle != nil && req.chargedBefore(z) {
			continue
		}
		key, empty := z.c.Key.Expand(req.vars, req.repl)
		if empty {
			z.empty.Note(h.logger, placeholders.NoKey, req.vars, req.repl)
		}
		if empty && z.EmptyKey == emptySkip {
			continue
		}
		if empty && z.EmptyKey == emptyDeny {
			req.keyless = z
			req.zones, req.charges = nil, nil
			break
		}
		c := h.chargeOf(z, key, req)
		rule := z.overrides.Rule(key)
		if rule.Decides() || z.override(&c, rule) {
			if req.noteOverride(z, key, rule) {
				if rule.Deny {
					break
				}
				continue
			}
		}
		req.zones = append(req.zones, z)
		req.charges = append(req.charges, c)
	}
	return req, nil
}

// isKeyEnforced reports whether the zone may deny the request's key.
func (z *liveZone) isKeyEnforced(req *request, percent int64) bool {
	key, _ := z.c.Key.Expand(req.vars, req.repl)
	return enforce.IsEnforced(z.Name, key, percent)
}

// chargeOf returns what the request spends on a key of a zone.
func (h *Handler) chargeOf(z *liveZone, key string, req *request) window.Charge {
	c, none := z.charge(key, req.repl)
	if none != 0 {
		z.empty.Note(h.logger, none, req.vars, req.repl)
	}
	c.Fields = z.c.Notes.Expand(req.vars, req.repl)
	return c
}

// publish makes the placeholders of the request available.
func (req *request) publish() {
	vars := req.vars
	if vars == nil {
		return
	}
	previous, _ := vars[requestVar].(*request)
	req.previous = previous
	vars[requestVar] = req
	if previous != nil {
		return
	}
	req.repl.Map(func(name string) (any, bool) {
		name, ok := strings.CutPrefix(name, "http.sliding_window.")
		if !ok {
			return nil, false
		}
		req, ok := vars[requestVar].(*request)
		if !ok {
			return nil, false
		}
		return req.placeholder(name)
	})
}

// placeholder returns the value of {http.sliding_window.<name>}. Without a zone
// in its name it tells of the tightest limit of the last handler.
func (req *request) placeholder(name string) (any, bool) {
	field, zone := name, ""
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		zone, field = name[:dot], name[dot+1:]
	}
	if zone == "" {
		switch field {
		case "allowed":
			return req.allowed, true
		case "zone":
			return req.tightestZone(), true
		case "retry_after":
			return req.retryAfter, true
		case "override":
			return req.override(), true
		}
		if len(req.decisions) == 0 {
			return decisionField(nil, field)
		}
		return decisionField(req.tightest(), field)
	}
	switch field {
	case "enforced":
		return req.enforced(zone), true
	case "source":
		return req.source(zone), true
	case "override":
		return req.overrideOf(zone), true
	}
	for ; req != nil; req = req.previous {
		for i := range req.charges {
			if req.charges[i].Zone == zone && len(req.decisions) > 0 {
				ds := req.decisionsOf(i)
				return decisionField(&ds[answer.Tightest(ds)], field)
			}
		}
		if s := req.shadowOf(zone); s != nil {
			return s.field(field)
		}
	}
	return decisionField(nil, field)
}

// enforced returns whether a zone that counts the request may deny it; empty if none of that name
// does.
func (req *request) enforced(zone string) any {
	for ; req != nil; req = req.previous {
		if enforced, counts := req.enforcedHere(zone); counts {
			return enforced
		}
	}
	return ""
}

// decisionField returns a field of a decision, empty if d is nil: nothing was
// decided.
func decisionField(d *window.Decision, field string) (any, bool) {
	if d == nil {
		return "", slices.Contains(decisionFields, field)
	}
	switch field {
	case "allowed":
		return d.Allowed, true
	case "limit":
		return d.Limit, true
	case "remaining":
		return d.Remaining, true
	case "retry_after":
		if d.RetryAfter == window.Never {
			return 0, true
		}
		return answer.Seconds(d.RetryAfter), true
	case "reset_after":
		return answer.Seconds(d.ResetAfter), true
	}
	return nil, false
}

var decisionFields = []string{"allowed", "limit", "remaining", "retry_after", "reset_after"}

// decisionsOf returns the decisions on charge i, one per policy.
func (req *request) decisionsOf(i int) []window.Decision {
	from := engine.CountPolicies(req.charges[:i])
	return req.decisions[from : from+len(req.charges[i].Policies)]
}

// quotas returns what RateLimit fields say of charge i's limits.
func (req *request) quotas(i int) *answer.Quotas {
	z := req.zones[i]
	quotas := z.c.Quotas
	if z.load != nil {
		quotas = z.load.QuotasOf(req.charges[i].Policies)
	}
	if quotas != nil && req.ruleHere(z.Name) == nil {
		return quotas
	}
	return answer.NewQuotas(req.charges[i].Zone, req.charges[i].Policies)
}

// tightest returns the decision that matters most to the client.
func (req *request) tightest() *window.Decision {
	return &req.decisions[answer.Tightest(req.decisions)]
}

func (req *request) tightestZone() string {
	if req.keyless != nil {
		return req.keyless.Name
	}
	if len(req.decisions) == 0 {
		return ""
	}
	at := answer.Tightest(req.decisions)
	for i := range req.charges {
		if at -= len(req.charges[i].Policies); at < 0 {
			return req.charges[i].Zone
		}
	}
	return ""
}

// wait returns the time until the request would pass.
func (req *request) wait() time.Duration {
	if rule := req.denyingRule(); rule != nil {
		return rule.Left()
	}
	if req.keyless != nil {
		return window.Never
	}
	return req.tightest().RetryAfter
}

// violated returns the names of the policies that deny, as RateLimit-Policy
// spells them.
func (req *request) violated() []string {
	if req.keyless != nil {
		return []string{req.keyless.Name}
	}
	var names []string
	for i := range req.charges {
		for j, d := range req.decisionsOf(i) {
			if !d.Allowed {
				names = append(names, req.quotas(i).Limits[j].Name)
			}
		}
	}
	return names
}
