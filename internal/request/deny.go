package request

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/routes"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Errors that error routes get.
var (
	errExceeded    = errors.New("rate limit exceeded")
	errNoKey       = errors.New("the request lacks what it is counted by")
	errBanned      = errors.New("the client is banned")
	errBusy        = errors.New("too many requests at the same time")
	errUnavailable = errors.New("the rate limit cannot be checked at the moment")
)

// StatusClientClosed is what proxies log for a client that hung up.
const StatusClientClosed = 499

// denialStatus returns the status of a denial, and the error that error routes get. busy and shared are what Handler.busy says.
func (h *Handler) denialStatus(req *request, busy, shared bool) (int, error) {
	switch {
	case req.ban() != nil:
		return cmp.Or(req.deniedBy.Ban.Status, h.Status), errBanned
	case req.lacksKey() && req.deniedBy.EmptyKeyStatus != 0:
		return req.deniedBy.EmptyKeyStatus, errNoKey
	case shared:
		return h.Busy, errBusy
	case busy:
		return h.Status, errBusy
	}
	return h.Status, errExceeded
}

// busy reports whether nothing but limits of requests at the same time denies the request, so that it is not known when it would
// pass, and whether all clients share them, so that none is to blame.
func (h *Handler) busy(req *request) (busy, shared bool) {
	if !h.holds || req.deniedBy != nil {
		return false, false
	}
	shared = true
	for i, z := range req.zones {
		if window.Allowed(req.decisionsOf(i)) {
			continue
		}
		if !z.Held {
			return false, false
		}
		shared = shared && z.Key.Placeholders == 0
	}
	return true, shared
}

// deny answers a request that a limit denies: through the error routes, if one
// answers, else by itself.
func (h *Handler) deny(w http.ResponseWriter, r *http.Request, req *request) error {
	kind := answer.ProblemQuota
	if h.loads && req.reduced() {
		kind = answer.ProblemCapacity
	}
	jitter, told := h.Jitter, true // whether the client hears how long it has to wait
	if req.ban() != nil {
		kind, jitter, told = answer.ProblemAbnormal, 0, !req.deniedBy.Ban.Silent
	}
	busy, shared := h.busy(req)
	if shared {
		kind = answer.ProblemCapacity
	}
	if !busy {
		req.retryAfter = answer.RetryAfter(req.wait(), jitter)
	}
	retryAfter := strconv.FormatInt(req.retryAfter, 10)
	header, lines := w.Header(), new([2][1]string)
	answer.ForgetBody(header)
	lines[0][0], lines[1][0] = "no-store", retryAfter
	header["Cache-Control"] = lines[0][:]
	if req.retryAfter > 0 && told {
		header["Retry-After"] = lines[1][:]
	}
	if h.API != nil && told && !busy {
		h.API.SetRetry(header, req.retryAfter)
	}
	h.logDenial(req)

	status, cause := h.denialStatus(req, busy, shared)
	if err := routes.ErrorFor(r, status, cause); err != nil {
		return err
	}
	title, detail := "Rate limit exceeded", "This request can never pass: it costs more than the limit."
	switch {
	case busy:
		title, detail = "Concurrency limit exceeded", "Too many requests are open at the same time."
	case req.denyingRule() != nil && req.retryAfter == 0:
		detail = "Requests like this one are denied until further notice."
	case req.lacksKey():
		detail = "The request lacks what it is counted by."
	case req.retryAfter > 0:
		detail = "Try again in " + retryAfter + " s."
	}
	p := answer.Problem{
		Detail: detail, RetryAfter: req.retryAfter, Status: status,
		Title: title, Kind: kind, Violated: req.violated(), API: h.API,
	}
	if h.API != nil {
		p.Units = req.deniedUnits()
	}
	if cause == errNoKey && status != http.StatusTooManyRequests { //nolint:errorlint // it is that very error
		p.Title, p.Kind = cmp.Or(http.StatusText(status), "Request denied"), answer.ProblemOfStatus
	}
	if req.ban() != nil {
		p.Title = "Abnormal usage detected"
	}
	if !told {
		p = answer.Problem{Detail: "The request is denied.", Status: status, Title: cmp.Or(http.StatusText(status), "Request denied"), Kind: answer.ProblemOfStatus, API: h.API}
	}
	p.Write(w, r)
	return nil
}

// lacksKey reports whether a zone denies the request for want of a key.
func (req *request) lacksKey() bool {
	return req.deniedBy != nil && req.denyingRule() == nil && req.ban() == nil
}

// unavailable answers a request that was not decided on: through the error routes, if one answers, else without
// them. Caddy would log an error that no route answers, one
// line per request.
func (h *Handler) unavailable(w http.ResponseWriter, r *http.Request, req *request) error {
	req.retryAfter = 1
	answer.ForgetBody(w.Header())
	w.Header()["Retry-After"] = []string{"1"}
	w.Header()["Cache-Control"] = []string{"no-store"}
	if err := routes.ErrorFor(r, http.StatusServiceUnavailable, errUnavailable); err != nil {
		return err
	}
	p := answer.Problem{
		Detail: "The rate limit cannot be checked at the moment.", Status: http.StatusServiceUnavailable,
		Title: "Temporarily unavailable", Kind: answer.ProblemCapacity, API: h.API,
	}
	p.Write(w, r)
	return nil
}

// refuseBody answers a request whose body could not be read before the decision: through the error routes, if one
// answers, else by itself. A client that hung up, and an error of the server, are left to Caddy.
func (h *Handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) error {
	var refusal caddyhttp.HandlerError
	if !errors.As(err, &refusal) || refusal.StatusCode < 400 || refusal.StatusCode >= StatusClientClosed {
		return err
	}
	if err := routes.ErrorFor(r, refusal.StatusCode, err); err != nil {
		return err
	}
	answer.ForgetBody(w.Header())
	detail := "The body of the request could not be read."
	switch refusal.StatusCode {
	case http.StatusRequestTimeout:
		detail = "The body of the request came too late."
	case http.StatusRequestEntityTooLarge:
		detail = "The body of the request is too large."
	}
	p := answer.Problem{
		Detail: detail, Status: refusal.StatusCode,
		Title: cmp.Or(http.StatusText(refusal.StatusCode), "Request refused"), Kind: answer.ProblemOfStatus, API: h.API,
	}
	p.Write(w, r)
	return nil
}

func (h *Handler) logDenial(req *request) {
	text := "rate limit exceeded"
	if req.ban() != nil {
		text = "request of a banned key"
	}
	c := h.Logger.Check(zap.DebugLevel, text)
	if c == nil {
		return
	}
	fields := []zap.Field{zap.String("zone", req.tightestZone()), zap.Int64("retry_after", req.retryAfter)}
	if req.deniedBy == nil {
		fields = append(fields, zap.Strings("policies", req.violated()))
	}
	if h.LogKey {
		if c := req.tightestCharge(); c != nil && req.deniedBy == nil {
			fields = append(fields, zap.String("key", c.Key))
		}
		if req.deniedBy != nil && !req.lacksKey() {
			fields = append(fields, zap.String("key", req.overridden.key))
		}
	}
	c.Write(fields...)
}

// reduced reports whether nothing but the load denies the request: as far as is known, the limits as
// they are configured have room for it. A cost above a limit that the factor made smaller waits for
// a window.
func (req *request) reduced() bool {
	reduced := req.deniedBy == nil
	for i := range req.zones {
		if !window.Allowed(req.decisionsOf(i)) && !req.reducedIn(i) {
			reduced = false
		}
	}
	return reduced
}

// reducedIn is reduced for one zone, which denies the request.
func (req *request) reducedIn(i int) bool {
	z := req.zones[i]
	if z.Load == nil || req.ruleHere(z.Name) != nil {
		return false
	}
	base := z.Policies
	if base == nil {
		base, _ = z.ExpandLimits(z.Limits, req.repl)
	}
	return reduces(base, &req.charges[i], req.decisionsOf(i))
}

// reduces reports whether a charge was denied that the limits as they are configured have room for.
func reduces(base []window.Policy, c *window.Charge, ds []window.Decision) bool {
	reduced := true
	for j := range ds {
		d := &ds[j]
		switch {
		case d.Allowed:
		case len(base) != len(ds): // placeholders have changed since
			reduced = false
		case d.Limit-d.Remaining > base[j].Limit-c.Cost:
			reduced = false
		case d.RetryAfter == window.Never:
			d.RetryAfter = c.Policies[j].Window
		}
	}
	return reduced
}

// deniedUnits returns what the zone counts that denies the request longest.
func (req *request) deniedUnits() answer.Units {
	if req.deniedBy != nil {
		return unitsOf(req.deniedBy)
	}
	name := req.tightestZone()
	for _, z := range req.zones {
		if z.Name == name {
			return unitsOf(z)
		}
	}
	return answer.Requests
}
