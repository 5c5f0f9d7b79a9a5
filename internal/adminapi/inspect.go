package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/dryrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// inspect says what the next request on a counter meets, or a request that is like an example.
func (a API) inspect(r *http.Request, body []byte) (int, any, error) {
	selector, err := control.DecodeSelector(body)
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	if selector.Request != nil {
		return a.inspectRequest(r.Context(), selector.Request)
	}
	found, err := findCounter(selector)
	if err != nil {
		return 0, nil, err
	}
	z, c := found.zones[0], &found.charge
	answer, err := inspectCharge(r.Context(), z, c, found.rule, found.needs)
	if err != nil || found.rule.Decides() {
		return http.StatusOK, answer, err
	}
	for _, t := range z.Decider.InTiers(c) {
		tier, err := inspectCharge(r.Context(), z, &t.Charge, t.Rule, running.Needs{Cost: found.needs.Cost})
		if err != nil {
			return 0, nil, err
		}
		answer.AddTier(tier)
	}
	return http.StatusOK, answer, nil
}

// inspectCharge says what a charge meets, whose key has an override; nil without one.
func inspectCharge(ctx context.Context, z *running.ActiveZone, c *window.Charge, rule *overrides.Rule, needs running.Needs) (*control.Inspection, error) {
	if rule.Decides() {
		return z.Overridden(c, rule, needs), nil
	}
	peek := peekOf(z, c.Key)
	ds, by, cause, err := peek(ctx, []window.Charge{*c}, z.Configured.OnError.Local(), z.Share)
	if err != nil {
		return nil, Unavailable(z, err)
	}
	i := z.Inspection(ctx, c, rule, needs, ds, z.Used(ctx, peek, c, ds), by, cause)
	z.NoteBan(i)
	return i, nil
}

// peekOf returns what looks at the counter of a key, where requests on the key count now.
func peekOf(z *running.ActiveZone, key string) running.Peek {
	if percent := z.Decider.Enforced(); percent == enforce.Mark || enforce.IsEnforced(z.Name(), key, percent) {
		return z.Store.Peek
	}
	return z.Store.PeekShadow
}

// Unavailable returns the answer of the API to an error of the store of a zone.
func Unavailable(z *running.ActiveZone, err error) error {
	if !errors.Is(err, window.ErrUnavailable) {
		return refused(http.StatusInternalServerError, err)
	}
	if z.Configured.OnError.Local() {
		return refused(http.StatusServiceUnavailable, err)
	}
	return refused(http.StatusServiceUnavailable, fmt.Errorf("%w; on_error %s decides until it is back", err, z.Configured.OnError))
}

// Evaluate asks the zones of a handler about the request of a trace, and adds what they would decide to the answer of
// the trace. It returns whether the request passes, and the status otherwise. known is false for handlers without zones.
// ctx is that of the operator's request.
type Evaluate func(ctx context.Context, w *dryrun.Trace, handler caddyhttp.MiddlewareHandler, r *http.Request) (status int, passes, known bool, err error)

// inspectRequest says which zones count an example of a request, and what they would decide.
func (a API) inspectRequest(ctx context.Context, example *control.ExampleRequest) (int, any, error) {
	r, err := example.HTTP(context.Background()) // values of ctx are those of the admin endpoint
	if err != nil {
		return 0, nil, refused(http.StatusBadRequest, err)
	}
	app, err := caddy.ActiveContext().AppIfConfigured("http")
	if err != nil {
		return 0, nil, refused(http.StatusNotFound, errors.New("request: no HTTP server runs"))
	}
	w, err := dryrun.NewTrace(app.(*caddyhttp.App), example, r, func(w *dryrun.Trace, handler caddyhttp.MiddlewareHandler, r *http.Request) (int, bool, bool, error) {
		return a.evaluate(ctx, w, handler, r)
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
func wouldPass(zones []control.EvaluatedZone) *bool {
	passes, known := true, true
	for _, z := range zones {
		switch {
		case z.Shadow:
		case z.Unknown != nil:
			known = false
		case z.Inspection == nil || !z.Passes():
			passes = false
		}
	}
	if passes && !known {
		return nil
	}
	return &passes
}
