package request

import (
	"errors"
	"net/http"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// mark decides on a request that has passed in the zones that mark it: as a handler would that comes next, with these zones and
// enforced, but the request goes on whatever they decide. Clients are told nothing of it. An error answers a request whose
// body does not come.
func (h *Handler) mark(w http.ResponseWriter, r *http.Request, req *request) error {
	m, err := h.expand(r, true)
	req.marks, m.isMark = m, true
	switch {
	case err != nil:
		if c := h.Logger.Check(zap.DebugLevel, "matcher of a mark zone failed"); c != nil {
			c.Write(zap.String("zone", m.deniedBy.Name), zap.Error(err))
		}
		m.deniedBy.Control.Shadow().FailedClosed.Count(m.deniedBy.Cost)
		return nil
	case m.deniedBy != nil:
		m.countMarks()
		return nil
	case len(m.charges) == 0:
		m.allowed = true
		return nil
	}
	var body *usage.Start
	if h.settles {
		if body, err = h.reserve(w, r, m); err != nil {
			return err
		}
	}
	if err = h.take(r, m); err != nil {
		h.unmarked(r, m, err)
		return nil
	}
	m.countMarks()
	h.strike(r, m)
	if !m.allowed && body != nil {
		h.rememberDenied(r.Context(), m)
	}
	return nil
}

// unmarked decides in the place of a store that could not, as on_error says. A client that is gone is not counted.
func (h *Handler) unmarked(r *http.Request, m *request, err error) {
	if r.Context().Err() != nil {
		return
	}
	m.allowed = h.OnError.Open() && errors.Is(err, window.ErrUnavailable)
	for i, z := range m.zones {
		switch {
		case z.Tier != "": // of the zone before
		case m.allowed:
			z.Control.Shadow().FailedOpen.Count(m.charges[i].Cost)
		default:
			z.Control.Shadow().FailedClosed.Count(m.charges[i].Cost)
		}
	}
}

// countMarks is count for zones that mark: nothing was denied.
func (req *request) countMarks() {
	req.noteTop()
	if z := req.deniedBy; z != nil {
		z.Control.Shadow().Denied.Count(z.Cost)
		return
	}
	for i, z := range req.zones {
		switch {
		case z.Tier != "": // of the zone before
		case req.allowed:
			z.Control.Shadow().Allowed.Count(req.charges[i].Cost)
		case !window.Allowed(req.decisionsFrom(i)):
			z.Control.Shadow().Denied.Count(req.charges[i].Cost)
		}
	}
}

// marked returns the names of the zones that would deny the request.
func (req *request) marked() (names []string) {
	if req.deniedBy != nil {
		return []string{req.deniedBy.Name}
	}
	for i, z := range req.zones {
		if z.Tier == "" && (len(req.decisions) == 0 || !window.Allowed(req.decisionsFrom(i))) {
			names = append(names, z.Name)
		}
	}
	return names
}

// markOf returns whether a zone that marks the request would let it pass, where no limit of the zone was looked at. It reports
// false in known if that is not so.
func (req *request) markOf(zone string) (allowed, known bool) {
	if !req.isMark {
		return false, false
	}
	if req.deniedBy != nil && req.deniedBy.Name == zone {
		return false, true
	}
	for _, z := range req.zones {
		if z.Name == zone {
			return req.allowed, true
		}
	}
	return true, req.ruleHere(zone) != nil // it exempts the request
}
