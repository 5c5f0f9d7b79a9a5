package request

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// request is one request in one handler: what it wants to spend, and what was
// decided. It lives as long as the request, for placeholders that are read later.
type request struct {
	zones     []*zone.Live // one per charge; see addWider
	charges   []window.Charge
	decisions []window.Decision // one per policy; empty, with room for them, if nothing was decided
	allowed   bool
	// Whether the fields of the response held what this request announced and what
	// earlier handlers did, and nothing else.
	announced bool
	origin    engine.Origin // where it was, if it was
	inDoubt   bool          // in this process, and perhaps in the store
	isMark    bool          // it is the marks of another one
	isMarked  bool          // zones of the handler mark the request if it passes
	unsettled bool          // other requests, which are not settled or were not, may be why a zone that settles denies
	// The request in zones that mark it; nil without such zones, and until it has passed the others.
	marks *request
	// The zone that denies for want of a key, by an override or by a ban; the store was not asked then.
	deniedBy *zone.Live
	// Overrides and bans of the request's keys; nil without any.
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
		zoneRoom     [1]*zone.Live
		chargeRoom   [1]window.Charge
		decisionRoom [1]window.Decision
	}
	requestOfTwo struct {
		request
		zoneRoom     [2]*zone.Live
		chargeRoom   [2]window.Charge
		decisionRoom [2]window.Decision
	}
)

// emptyRequest returns a request with room for what the zones will say of it.
func (h *Handler) emptyRequest() *request {
	if len(h.zones) == 1 && len(h.zones[0].Limits) == 1 && h.zones[0].Wider == nil {
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

// shadowed is a request in a zone that does not deny it.
type shadowed struct {
	*Options
	zone     *counted
	charge   window.Charge
	wider    []wider
	assessed bool // the matchers have been asked
	applies  bool
	denied   bool // for want of a key, by an override or by a ban
	strikes  bool // a denial by a limit may lead to a ban
	// The decisions of the zone, once they are known.
	decisions atomic.Pointer[[]window.Decision]
	rule      *overrides.Rule // the override of the key; nil without one
	slot      *slot           // that the request holds if it is admitted; nil: none
}

// overridden has the overrides of a request in one handler, and the ban that denies it.
type overridden struct {
	rules  []zoneRule
	denies *overrides.Rule // of the zone request.deniedBy; nil if none denies
	ban    *banbook.Ban    // in that zone; nil if none denies
	key    string          // that is denied
}

type zoneRule struct {
	zone *zone.Live
	*overrides.Rule
}

// decisionsOf returns the decisions on charge i, one per policy.
func (req *request) decisionsOf(i int) []window.Decision {
	from := engine.CountPolicies(req.charges[:i])
	return req.decisions[from : from+len(req.charges[i].Policies)]
}

// ownDecisions returns the decisions on the key of charge i, which is that of a zone: on its limits, and on its requests at the
// same time.
func (req *request) ownDecisions(i int) []window.Decision {
	ds := req.decisionsFrom(i)
	if end := req.endOf(i); end > i+1 && req.zones[i+1].Held {
		return ds[:len(req.charges[i].Policies)+1]
	}
	return ds[:len(req.charges[i].Policies)]
}

// endOf returns the place behind the charges of the zone that begin at charge i.
func (req *request) endOf(i int) int {
	for i++; i < len(req.zones) && req.zones[i].Tier != ""; i++ {
	}
	return i
}

// decisionsFrom returns the decisions in the zone of charge i, from this charge on.
func (req *request) decisionsFrom(i int) []window.Decision {
	from := engine.CountPolicies(req.charges[:i])
	return req.decisions[from : from+engine.CountPolicies(req.charges[i:req.endOf(i)])]
}

// quotas returns what RateLimit fields say of charge i's limits.
func (req *request) quotas(i int) *answer.Quotas {
	z := req.zones[i]
	quotas := z.Quotas
	if z.Load != nil {
		quotas = z.Load.QuotasOf(req.charges[i].Policies)
	}
	if quotas != nil && req.ruleHere(z.Name) == nil {
		return quotas
	}
	if z.Held {
		return answer.NewConcurrentQuotas(z.PolicyName(), req.charges[i].Policies)
	}
	return answer.NewQuotas(z.PolicyName(), req.charges[i].Policies)
}

// tightest returns the decision that matters most to the client.
func (req *request) tightest() *window.Decision {
	return &req.decisions[answer.Tightest(req.decisions)]
}

func (req *request) tightestZone() string {
	if req.deniedBy != nil {
		return req.deniedBy.Name
	}
	if c := req.tightestCharge(); c != nil {
		return c.Zone
	}
	return ""
}

// tightestCharge returns the charge with the tightest decision; nil without a decision.
func (req *request) tightestCharge() *window.Charge {
	if len(req.decisions) == 0 {
		return nil
	}
	i, _ := req.chargeWith(answer.Tightest(req.decisions), 0)
	return &req.charges[i]
}

// wait returns the time until the request would pass.
func (req *request) wait() time.Duration {
	if rule := req.denyingRule(); rule != nil {
		return rule.Left()
	}
	if ban := req.ban(); ban != nil {
		return ban.Left
	}
	if req.deniedBy != nil {
		return window.Never
	}
	return req.tightest().RetryAfter
}

// violated returns the names of the policies that deny, as RateLimit-Policy
// spells them.
func (req *request) violated() []string {
	if req.deniedBy != nil {
		return []string{req.deniedBy.Name}
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

// each yields what the handlers up to this one decided on the request, the last one first. Zones that mark it come after the
// others of their handler.
func (req *request) each(yield func(*request) bool) {
	for ; req != nil; req = req.previous {
		if !yield(req) || req.marks != nil && !yield(req.marks) {
			return
		}
	}
}

// ruleHere returns the override of the request in a zone of this handler; nil without one.
func (req *request) ruleHere(zone string) *overrides.Rule {
	if req.overridden != nil {
		for _, r := range req.overridden.rules {
			if r.zone.Name == zone {
				return r.Rule
			}
		}
	}
	if s := req.shadowOf(zone); s != nil {
		return s.rule
	}
	return nil
}

// ruleIn returns the override of the request in a zone or a tier that may deny it; nil without one.
func (req *request) ruleIn(z *zone.Live) *overrides.Rule {
	if req.overridden != nil {
		for _, r := range req.overridden.rules {
			if r.zone == z {
				return r.Rule
			}
		}
	}
	return nil
}

// denyingRule returns the override that denies the request; nil if none does.
func (req *request) denyingRule() *overrides.Rule {
	if req.overridden == nil {
		return nil
	}
	return req.overridden.denies
}

// isShadowed reports whether a zone counts the request here and does not deny it.
func (req *request) isShadowed() bool {
	if req.shadows == nil {
		return false
	}
	for i := range *req.shadows {
		if (*req.shadows)[i].applies {
			return true
		}
	}
	return false
}

// shadowOf returns the request in a zone that counts it here and does not deny it, or nil without
// such a zone.
func (req *request) shadowOf(zone string) *shadowed {
	if req.shadows == nil {
		return nil
	}
	for i := range *req.shadows {
		if s := &(*req.shadows)[i]; s.applies && s.zone.Name == zone {
			return s
		}
	}
	return nil
}

// DeniedLater implements load.TimedRequest. It reports whether a later handler of this module has denied the request.
func (req *request) DeniedLater() bool {
	last, _ := req.vars[requestVar].(*request)
	return last != nil && last != req && !last.allowed
}

// Options are what a handler says of requests in all of its zones.
type Options struct {
	Store        *openstore.SharedStore
	OnError      control.OnError
	Share        bool
	Status       int         // of a denial
	Busy         int         // of a denial for which no client is to blame
	IETF, Legacy bool        // which fields answers get
	API          *answer.API // whose clients read bodies and fields; nil: problem details
	Jitter       float64
	LogKey       bool
	Logger       *zap.Logger
}

// Handler takes requests through the zones of a handler. It is safe for concurrent use.
type Handler struct {
	Options
	zones   []counted
	live    []*zone.Live // the same
	settles bool         // whether a zone has count_if or settle
	loads   bool         // whether a zone has load
	times   bool         // whether a zone measures answer times
	bans    bool         // whether a zone has ban
	holds   bool         // whether a zone has concurrent
	clients []clientZone
}

// counted is a zone, and the requests that it counts.
type counted struct {
	*zone.Live
	matchers caddyhttp.MatcherSets
}

// applies reports whether the zone counts the request.
func (z *counted) applies(r *http.Request) (bool, error) {
	if len(z.matchers) == 0 {
		return true, nil
	}
	return z.matchers.AnyMatchWithError(r)
}
