package slidingwindow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// checkEnforce returns the percentage of keys that a word enforces, or why the zone cannot be enforced so.
func (z *Zone) checkEnforce(word string) (percent int64, err error) {
	if percent, err = enforce.Percent(word); err != nil {
		return 0, err
	}
	if percent != enforce.All && percent != enforce.None && z.Key != "" && len(template.Names(z.Key)) == 0 {
		return 0, fmt.Errorf("enforce %s: the key has no placeholder, so that all requests would be in or out together; write on or shadow", word)
	}
	if percent != enforce.All && z.settles() {
		option := "count_if"
		if z.CountIf == nil {
			option = "settle"
		}
		return 0, fmt.Errorf("enforce %s and %s cannot be combined, for units counted beside the handlers are not given back; write on, or take out %s", word, option, option)
	}
	return percent, nil
}

// enforced returns the percentage of keys whose requests the zone may deny now, or [enforce.Exempt].
func (z *liveZone) enforced() int64 {
	set := z.control.Current()
	if set == nil || set.Percent > enforce.None && z.checkBeside() != nil {
		return z.c.Percent
	}
	return set.Percent
}

// setEnforce enforces the zone as an order says, wherever the zone is used in this process. The mode config goes back to
// the configuration.
func (z *liveZone) setEnforce(o enforce.Order) error {
	if o.Mode == enforce.Config {
		z.control.Reset()
		return nil
	}
	if o.Mode == "" {
		return fmt.Errorf("zone %s: enforce is missing; use one of on, shadow, config, or a percentage such as 25%%", z.Name)
	}
	percent, err := z.checkEnforce(o.Mode)
	if err == nil && percent != enforce.All {
		err = z.use.checkShadow()
	}
	if err == nil && percent != enforce.None {
		err = z.checkBeside()
	}
	if err != nil && o.All && o.Mode == control.EnforceShadow {
		percent, err = enforce.Exempt, nil
	}
	if err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.control.Set(enforce.Setting{Percent: percent, Until: o.Until, Why: o.Why})
	return nil
}

// checkBeside reports why a zone that is configured as shadow cannot be enforced while Caddy runs.
// CL.THROTTLE decides on a request that one zone counts, and which zones those are is settled
// when the configuration loads.
func (z *liveZone) checkBeside() error {
	if z.c.Percent != enforce.None {
		return nil
	}
	for _, o := range z.use.beside {
		if o.onServer() {
			return fmt.Errorf("CL.THROTTLE may count zone %s, and decides on one zone at a time; change enforce in the configuration", o.Name)
		}
	}
	return nil
}

// checkShadow reports why a zone cannot count without denying.
func (u *zoneUse) checkShadow() error {
	if u.noShadow {
		return errors.New("the store cannot keep counters of requests that are not denied apart; write enforce on, or take another store")
	}
	return nil
}

// shadowed is a request in a zone that does not deny it.
type shadowed struct {
	handler  *Handler
	zone     *liveZone
	charge   window.Charge
	assessed bool // the matchers have been asked
	applies  bool
	denied   bool // for want of a key, or by an override
	// The decisions of the zone, once they are known.
	decisions atomic.Pointer[[]window.Decision]
	rule      *overrides.Rule // the override of the key; nil without one
}

// addShadow notes that a zone does not deny the request.
func (req *request) addShadow(h *Handler, z *liveZone) *shadowed {
	if req.shadows == nil {
		shadows := make([]shadowed, 0, len(h.zones)) // they never move
		req.shadows = &shadows
	}
	*req.shadows = append(*req.shadows, shadowed{handler: h, zone: z})
	return &(*req.shadows)[len(*req.shadows)-1]
}

// watch counts the request, if it passes, in zones that do not deny it. They decide beside the next
// handlers. What their matchers say, to placeholders above all, these handlers do not see.
func (h *Handler) watch(r *http.Request, req *request) {
	if req.shadows == nil {
		return
	}
	if !req.allowed {
		req.shadows = nil
		return
	}
	view := &request{vars: req.vars}
	for i := range *req.shadows {
		s := &(*req.shadows)[i]
		if s.assessed {
			view.repl = req.repl
		} else {
			view.repl = overlay(req.repl)
			applies, err := s.zone.applies(r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, view.repl)))
			h.assess(s, view, applies, err)
		}
		if s.applies && !s.denied {
			h.store.Shadow.Add(s)
		}
	}
}

// overlay returns a replacer that knows what another one knows, and tells it nothing.
func overlay(repl *caddy.Replacer) *caddy.Replacer {
	over := caddy.NewEmptyReplacer()
	over.Map(repl.Get)
	return over
}

// assess finds out what a request spends in a zone that does not deny it, and whether the zone
// would deny it for want of a key, or fail.
func (h *Handler) assess(s *shadowed, view *request, applies bool, err error) {
	z := s.zone
	s.assessed = true
	if err != nil {
		z.control.Shadow().FailedClosed.Count(z.c.Cost)
		if c := h.logger.Check(zap.DebugLevel, "matcher of a shadow zone failed"); c != nil {
			c.Write(zap.String("zone", z.Name), zap.Error(err))
		}
		return
	}
	if !applies {
		return
	}
	key, empty := z.c.Key.Expand(view.vars, view.repl)
	if empty {
		z.empty.Note(h.logger, placeholders.NoKey, view.vars, view.repl)
	}
	switch {
	case empty && z.EmptyKey == emptySkip:
	case empty && z.EmptyKey == emptyDeny:
		s.applies, s.denied = true, true
		z.control.Shadow().Denied.Count(z.c.Cost)
		z.top.Denied("")
	default:
		h.assessKey(s, key, view)
	}
}

// assessKey is assess for a key that is counted, or has an override.
func (h *Handler) assessKey(s *shadowed, key string, view *request) {
	z := s.zone
	s.rule = z.overrides.Rule(key)
	switch {
	case s.rule != nil && s.rule.Exempt:
		return
	case s.rule != nil && s.rule.Deny:
		s.applies, s.denied = true, true
		z.control.Shadow().Denied.Count(z.c.Cost)
		z.top.Denied(key)
		return
	}
	s.applies, s.charge = true, h.chargeOf(z, key, view)
	if !z.override(&s.charge, s.rule) {
		s.rule = nil
	}
	s.charge.Lease = window.Lease{} // batches ask the store as seldom
}

// Charge implements shadow.Request.
func (s *shadowed) Charge() *window.Charge { return &s.charge }

// Local implements shadow.Request.
func (s *shadowed) Local() (local, share bool) {
	return s.handler.OnError.Local(), s.handler.Share
}

// Decided implements shadow.Request.
func (s *shadowed) Decided(ds []window.Decision) {
	s.decisions.Store(&ds) // before it is counted, so that who sees the count can see this
	if window.Allowed(ds) {
		s.counters().Allowed.Count(s.charge.Cost)
		s.zone.top.Charged(s.charge.Key, s.charge.Cost)
		return
	}
	s.counters().Denied.Count(s.charge.Cost)
	s.zone.top.Denied(s.charge.Key)
}

// Failed implements shadow.Request.
func (s *shadowed) Failed(err error) {
	if errors.Is(err, window.ErrUnavailable) && s.handler.OnError.Open() {
		s.counters().FailedOpen.Count(s.charge.Cost)
		return
	}
	s.counters().FailedClosed.Count(s.charge.Cost)
}

// Dropped implements shadow.Request.
func (s *shadowed) Dropped() { s.counters().Dropped.Count(s.charge.Cost) }

func (s *shadowed) counters() metrics.ShadowCounters { return s.zone.control.Shadow() }

// enforcedHere reports whether a zone may have denied the request in this handler, and whether
// the zone counts it here.
func (req *request) enforcedHere(zone string) (enforced, counts bool) {
	if req.keyless != nil && req.keyless.Name == zone {
		return true, true
	}
	for _, z := range req.zones {
		if z.Name == zone {
			return true, true
		}
	}
	return false, req.shadowOf(zone) != nil
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

// field returns a field of what the zone would have decided, empty until that is known.
func (s *shadowed) field(name string) (any, bool) {
	if s.denied && name == "allowed" {
		return false, true
	}
	ds := s.decisions.Load()
	if ds == nil {
		return decisionField(nil, name)
	}
	return decisionField(&(*ds)[answer.Tightest(*ds)], name)
}
