package request

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// watch counts the request, if it passes, in zones that do not deny it. They decide beside the next
// handlers. What their matchers say, to placeholders above all, these handlers do not see.
func (h *Handler) watch(r *http.Request, req *request, held *slots) {
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
			beside := r.WithContext(context.WithValue(r.Context(), caddy.ReplacerCtxKey, view.repl))
			applies, err := s.zone.applies(beside)
			h.assess(s, view, beside, applies, err)
		}
		if s.applies && !s.denied {
			held.addShadow(s)
			h.Store.Shadow.Add(s)
		}
	}
}

// overlay returns a replacer that knows what another one knows, and tells it nothing.
func overlay(repl *caddy.Replacer) *caddy.Replacer {
	over := caddy.NewEmptyReplacer()
	over.Map(repl.Get)
	return over
}

// Charges implements shadow.Request.
func (s *shadowed) Charges(to []window.Charge) []window.Charge {
	to = append(to, s.charge)
	for i := range s.wider {
		to = append(to, s.wider[i].Charge)
	}
	return to
}

// Size implements shadow.Request.
func (s *shadowed) Size() int {
	n := len(s.charge.Key) * (1 + len(s.wider)) // networks are about as long
	for _, field := range s.charge.Fields {
		n += len(field)
	}
	return n
}

// Local implements shadow.Request.
func (s *shadowed) Local() (local, share bool) {
	return s.OnError.Local(), s.Share
}

// Decided implements shadow.Request.
func (s *shadowed) Decided(ds []window.Decision) {
	s.decisions.Store(&ds) // before it is counted, so that who sees the count can see this
	if window.Allowed(ds) {
		if s.slot != nil {
			s.slot.take()
		}
		s.counters().Allowed.Count(s.charge.Cost)
		s.zone.Top.Charged(s.charge.Key, s.charge.Cost)
		for i := range s.wider {
			s.wider[i].tier.Top.Charged(s.wider[i].Key, s.charge.Cost)
		}
		return
	}
	s.counters().Denied.Count(s.charge.Cost)
	s.strike(ds)
	own := len(s.charge.Policies)
	if !window.Allowed(ds[:s.own()]) {
		s.zone.Top.Denied(s.charge.Key)
	}
	for i := range s.wider {
		w := &s.wider[i]
		if ds = ds[own:]; !window.Allowed(ds[:len(w.Policies)]) {
			w.tier.Top.Denied(w.Key)
		}
		own = len(w.Policies)
	}
}

// Failed implements shadow.Request.
func (s *shadowed) Failed(err error) {
	if errors.Is(err, window.ErrUnavailable) && s.OnError.Open() {
		s.counters().FailedOpen.Count(s.charge.Cost)
		return
	}
	s.counters().FailedClosed.Count(s.charge.Cost)
}

// Dropped implements shadow.Request.
func (s *shadowed) Dropped() { s.counters().Dropped.Count(s.charge.Cost) }

func (s *shadowed) counters() metrics.ShadowCounters { return s.zone.Control.Shadow() }
