package slidingwindow

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/routes"
)

// The words for which fields an answer gets.
const (
	fieldsIETF   = "ietf"
	fieldsLegacy = "legacy"
	fieldsBoth   = "both"
	fieldsNone   = "none"
)

// setFields tells the client what is left, in the fields of
// draft-ietf-httpapi-ratelimit-headers-11, in the legacy X-RateLimit fields, or in both.
func (h *Handler) setFields(header http.Header, req *request) {
	if h.Headers == fieldsIETF || h.Headers == fieldsBoth {
		req.announce(header)
	}
	if h.Headers == fieldsLegacy || h.Headers == fieldsBoth {
		answer.SetLegacy(header, req.tightest())
	}
	h.setAPIFields(header, req)
}

// announce writes the lines of RateLimit-Policy and RateLimit: one each, with the
// tightest limits of the response, at most answer.MostAnnounced of them.
func (req *request) announce(header http.Header) {
	if len(req.charges) > 1 || len(req.charges[0].Policies) > answer.MostAnnounced || answer.IsAnnounced(header) {
		req.announceSeveral(header)
		return
	}
	req.lines.Set(header, req.quotas(0), req.decisionsOf(0))
	req.announced = true
}

// announceSeveral is announce for several zones, or beside what is in the fields.
func (req *request) announceSeveral(header http.Header) {
	var room [answer.MostAnnounced]answer.Item
	items := room[:0]
	before, beside := req.announcedBefore(header), false
	if before != nil {
		items = before.appendTightest(items)
	} else {
		beside = answer.IsAnnounced(header)
	}
	req.lines.SetItems(header, req.appendOwn(items), beside)
	req.announced = !beside
}

// announcedBefore returns what an earlier handler decided on the same request, if the
// fields hold what it wrote and nothing else.
func (req *request) announcedBefore(header http.Header) *request {
	before, _ := req.vars[requestVar].(*request)
	if before == nil || !before.announced || !before.lines.AreIn(header) {
		return nil
	}
	return before
}

// appendTightest appends what the handlers up to this one announced.
func (req *request) appendTightest(items []answer.Item) []answer.Item {
	if req.previous != nil {
		items = req.previous.appendTightest(items)
	}
	if !req.announced {
		return items
	}
	return req.appendOwn(items)
}

// appendOwn appends the limits of the request, the tightest of all.
func (req *request) appendOwn(items []answer.Item) []answer.Item {
	for i := range req.charges {
		items = answer.AppendTightest(items, req.quotas(i), req.decisionsOf(i))
	}
	return items
}

// Errors that error routes get.
var (
	errExceeded    = errors.New("rate limit exceeded")
	errNoKey       = errors.New("the request lacks what it is counted by")
	errUnavailable = errors.New("the rate limit cannot be checked at the moment")
)

// denialStatus returns the status of a denial, and the error that error routes get.
func (h *Handler) denialStatus(req *request) (int, error) {
	if req.keyless != nil && req.keyless.EmptyKeyStatus != 0 && req.denyingRule() == nil {
		return req.keyless.EmptyKeyStatus, errNoKey
	}
	return h.Status, errExceeded
}

// deny answers a request that a limit denies: through the error routes, if one
// answers, else by itself.
func (h *Handler) deny(w http.ResponseWriter, r *http.Request, req *request) error {
	kind := answer.ProblemQuota
	if h.loads && req.reduced() {
		kind = answer.ProblemCapacity
	}
	req.retryAfter = answer.RetryAfter(req.wait(), h.Jitter)
	retryAfter := strconv.FormatInt(req.retryAfter, 10)
	header, lines := w.Header(), new([2][1]string)
	answer.ForgetBody(header)
	lines[0][0], lines[1][0] = "no-store", retryAfter
	header["Cache-Control"] = lines[0][:]
	if req.retryAfter > 0 {
		header["Retry-After"] = lines[1][:]
	}
	if h.api != nil {
		h.api.SetRetry(header, req.retryAfter)
	}
	h.logDenial(req)

	status, cause := h.denialStatus(req)
	if err := routes.ErrorFor(r, status, cause); err != nil {
		return err
	}
	detail := "This request can never pass: it costs more than the limit."
	switch {
	case req.denyingRule() != nil && req.retryAfter == 0:
		detail = "Requests like this one are denied until further notice."
	case req.keyless != nil && req.denyingRule() == nil:
		detail = "The request lacks what it is counted by."
	case req.retryAfter > 0:
		detail = "Try again in " + retryAfter + " s."
	}
	p := answer.Problem{
		Detail: detail, RetryAfter: req.retryAfter, Status: status,
		Title: "Rate limit exceeded", Kind: kind, Violated: req.violated(), API: h.api,
	}
	if h.api != nil {
		p.Units = req.deniedUnits()
	}
	if cause == errNoKey && status != http.StatusTooManyRequests { //nolint:errorlint // it is that very error
		p.Title, p.Kind = cmp.Or(http.StatusText(status), "Request denied"), answer.ProblemOfStatus
	}
	p.Write(w, r)
	return nil
}

// unavailable answers a request on which nobody could decide: through the error routes,
// if one answers, else by itself. Caddy would log an error that no route answers, one
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
		Title: "Temporarily unavailable", Kind: answer.ProblemCapacity, API: h.api,
	}
	p.Write(w, r)
	return nil
}

// refuseBody answers a request whose body could not be read before the decision: through the error routes, if one
// answers, else by itself. A client that hung up, and an error of the server, are left to Caddy.
func (h *Handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) error {
	var refusal caddyhttp.HandlerError
	if !errors.As(err, &refusal) || refusal.StatusCode < 400 || refusal.StatusCode >= statusClientClosed {
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
		Title: cmp.Or(http.StatusText(refusal.StatusCode), "Request refused"), Kind: answer.ProblemOfStatus, API: h.api,
	}
	p.Write(w, r)
	return nil
}

func (h *Handler) logDenial(req *request) {
	c := h.logger.Check(zap.DebugLevel, "rate limit exceeded")
	if c == nil {
		return
	}
	fields := []zap.Field{zap.String("zone", req.tightestZone()), zap.Int64("retry_after", req.retryAfter)}
	if req.keyless == nil {
		fields = append(fields, zap.Strings("policies", req.violated()))
	}
	if h.LogKey {
		for i := range req.charges {
			if req.charges[i].Zone == req.tightestZone() {
				fields = append(fields, zap.String("key", req.charges[i].Key))
			}
		}
		if req.denyingRule() != nil {
			fields = append(fields, zap.String("key", req.overridden.key))
		}
	}
	c.Write(fields...)
}
