// Package request takes a request through the zones of a handler, one way: expand finds the zones that count it, and what it
// spends there; decide asks the store, or who decides in its place; announce tells the client, metrics and logs; serve calls the
// next handlers, and settles what the answer cost; watch counts it in zones that do not deny it.
package request

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// New returns a Handler of zones, which count the requests that their matchers match.
func New(zones []*zone.Live, matchers []caddyhttp.MatcherSets, o Options) *Handler {
	h := &Handler{Options: o, live: zones}
	for i, z := range zones {
		h.zones = append(h.zones, counted{z, matchers[i]})
		h.settles, h.loads, h.times, h.bans = h.settles || z.Settles(), h.loads || z.Load != nil, h.times || z.Load.Timed(), h.bans || z.Ban != nil
		h.holds = h.holds || z.Held || z.Concurrent != nil
	}
	if h.times {
		h.clients = clientZones(zones)
	}
	if h.settles {
		h.Store.Settler.Use()
	}
	h.warnOfReservations()
	return h
}

// Serve takes a request through the zones, and calls the next handlers if it passes.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	req, err := h.expand(r, false)
	if err != nil {
		return err
	}
	var held *slots
	if h.holds {
		held = &slots{store: h.Store}
		defer held.end()
	}
	if req.deniedBy == nil && len(req.charges) == 0 {
		req.allowed = true
		if h.watch(r, req, held); req.isShadowed() || req.isMarked || req.overridden != nil {
			req.publish()
		}
		if req.overridden != nil {
			h.trace(r, req, control.SourceOverride)
		}
		return h.serve(w, r, req, held, next)
	}
	var body *usage.Start // what was read of the request's body
	if req.deniedBy == nil && h.settles {
		if body, err = h.reserve(w, r, req); err != nil {
			return h.refuseBody(w, r, err)
		}
	}
	by := h.foresee(r, req)
	if req.deniedBy == nil {
		if err = h.take(r, req); err != nil {
			return h.undecided(w, r, req, held, err, next)
		}
		held.add(req)
		h.setFields(w.Header(), req)
	}
	h.watch(r, req, held)
	req.publish()
	req.count()
	h.strike(r, req)
	if req.allowed {
		if by != "" {
			h.trace(r, req, by)
		}
		return h.serve(w, r, req, held, next)
	}
	if body != nil {
		h.rememberDenied(r.Context(), req)
	}
	err = h.deny(w, r, req)
	if by != "" {
		h.trace(r, req, by)
	}
	return err
}

// take decides on the request, and measures how long it waits for that.
func (h *Handler) take(r *http.Request, req *request) (err error) {
	start := load.Waiting()
	if h.settles {
		err = h.decideSettled(r.Context(), req)
	} else {
		err = h.decide(r.Context(), req)
	}
	load.WaitedSince(start, req.vars)
	return err
}

func (h *Handler) undecided(w http.ResponseWriter, r *http.Request, req *request, held *slots, err error, next caddyhttp.Handler) error {
	switch {
	case r.Context().Err() != nil:
		return caddyhttp.Error(StatusClientClosed, err)
	case !errors.Is(err, window.ErrUnavailable):
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	if c := h.Logger.Check(zap.DebugLevel, "store could not decide"); c != nil {
		c.Write(zap.String("on_error", string(h.OnError)), zap.Error(err))
	}
	for i, z := range req.zones {
		if z.Tier != "" {
			continue // of the zone before
		}
		c := &req.charges[i]
		z.Recorder.Failed(c, h.OnError.Open())
		if h.OnError.Open() {
			z.Counters.FailedOpen.Count(c.Cost)
		} else {
			z.Counters.FailedClosed.Count(c.Cost)
		}
	}
	req.allowed = h.OnError.Open()
	h.watch(r, req, held)
	req.publish()
	if req.allowed {
		h.trace(r, req, control.SourceAway)
		return h.serve(w, r, req, held, next)
	}
	err = h.unavailable(w, r, req)
	h.trace(r, req, control.SourceAway)
	return err
}
