package slidingwindow

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/answer"
	"github.com/slidingwindow/caddy-sliding-window/window"
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
//
// The legacy fields name no window: X-RateLimit-Limit is what may pass at once.
func (h *Handler) setFields(header http.Header, req *request) {
	if h.Headers == fieldsIETF || h.Headers == fieldsBoth {
		req.announce(header)
	}
	if h.Headers == fieldsLegacy || h.Headers == fieldsBoth {
		d := req.tightest()
		header["X-Ratelimit-Limit"] = []string{strconv.FormatInt(d.Limit, 10)}
		header["X-Ratelimit-Remaining"] = []string{strconv.FormatInt(d.Remaining, 10)}
		header["X-Ratelimit-Reset"] = []string{strconv.FormatInt(answer.Seconds(d.ResetAfter), 10)}
	}
}

// retryAfter returns the value of Retry-After: whole seconds, rounded up, at
// least 1, later by a random share of up to jitter. It is 0 if waiting cannot
// help.
func (h *Handler) retryAfter(wait time.Duration) int64 {
	if wait == window.Never {
		return 0
	}
	extra := time.Duration(rand.Float64() * h.Jitter * float64(wait)) //nolint:gosec // spreads load, keeps no secret
	return max(1, answer.Seconds(wait+min(extra, window.Never-wait)))
}

// announce writes the lines of RateLimit-Policy and RateLimit: one each, with the
// tightest limits of the response, at most answer.MostAnnounced of them.
func (req *request) announce(header http.Header) {
	if len(req.charges) > 1 || len(req.charges[0].Policies) > answer.MostAnnounced || header[answer.FieldPolicy] != nil || header[answer.FieldRateLimit] != nil {
		req.announceSeveral(header)
		return
	}
	quotas := req.quotas(0)
	var room [answer.FieldRoom]byte
	line := room[:0]
	ds := req.decisionsOf(0)
	for i := range ds {
		line = quotas.Limits[i].AppendState(line, &ds[i])
	}
	req.setLines(header, quotas.Policy, string(line))
	req.announced = true
}

// announceSeveral is announce for several zones, or beside what is in the fields.
func (req *request) announceSeveral(header http.Header) {
	var itemRoom [answer.MostAnnounced]item
	items := itemRoom[:0]
	before, beside := req.announcedBefore(header), false
	if before != nil {
		items = before.appendTightest(items)
	} else {
		beside = header[answer.FieldPolicy] != nil || header[answer.FieldRateLimit] != nil
	}
	items = req.appendOwn(items)
	var policyRoom, stateRoom [2 * answer.FieldRoom]byte
	policy, state := policyRoom[:0], stateRoom[:0]
	if beside {
		policy = append(policy, strings.Join(header[answer.FieldPolicy], answer.Separator)...)
		state = append(state, strings.Join(header[answer.FieldRateLimit], answer.Separator)...)
	}
	for i := range items {
		if len(policy) > 0 {
			policy = append(policy, answer.Separator...)
		}
		policy = append(policy, items[i].Policy...)
		state = items[i].AppendState(state, items[i].decision)
	}
	req.setLines(header, string(policy), string(state))
	req.announced = !beside
}

// setLines sets both fields, in memory of the request.
func (req *request) setLines(header http.Header, policy, state string) {
	req.lines[0][0], req.lines[1][0] = policy, state
	header[answer.FieldPolicy], header[answer.FieldRateLimit] = req.lines[0][:], req.lines[1][:]
}

// announcedBefore returns what an earlier handler decided on the same request, if the
// fields hold what it wrote and nothing else.
func (req *request) announcedBefore(header http.Header) *request {
	before, _ := req.vars[requestVar].(*request)
	if before == nil || !before.announced {
		return nil
	}
	policy, state := header[answer.FieldPolicy], header[answer.FieldRateLimit]
	if len(policy) != 1 || len(state) != 1 || &policy[0] != &before.lines[0][0] || &state[0] != &before.lines[1][0] {
		return nil
	}
	return before
}

// item is a limit with what was decided on it.
type item struct {
	answer.Quota
	decision *window.Decision
}

// appendTightest appends what the handlers up to this one announced.
func (req *request) appendTightest(items []item) []item {
	if req.previous != nil {
		items = req.previous.appendTightest(items)
	}
	if !req.announced {
		return items
	}
	return req.appendOwn(items)
}

// appendOwn appends the limits of the request. If there are more items than
// answer.MostAnnounced, the tightest are kept, in their order.
func (req *request) appendOwn(items []item) []item {
	for i := range req.charges {
		quotas, ds := req.quotas(i), req.decisionsOf(i)
		for j := range ds {
			if len(items) == answer.MostAnnounced {
				loosest := len(items) - 1
				for k := range items {
					if tighter(items[loosest].decision, items[k].decision) {
						loosest = k
					}
				}
				if !tighter(&ds[j], items[loosest].decision) {
					continue
				}
				items = append(items[:loosest], items[loosest+1:]...)
			}
			items = append(items, item{quotas.Limits[j], &ds[j]})
		}
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
	req.retryAfter = h.retryAfter(req.wait())
	retryAfter := strconv.FormatInt(req.retryAfter, 10)
	header, lines := w.Header(), new([2][1]string)
	answer.ForgetBody(header)
	lines[0][0], lines[1][0] = "no-store", retryAfter
	header["Cache-Control"] = lines[0][:]
	if req.retryAfter > 0 {
		header["Retry-After"] = lines[1][:]
	}
	h.logDenial(req)

	status, cause := h.denialStatus(req)
	if err := answer.ErrorForRoutes(r, status, cause); err != nil {
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
		Title: "Rate limit exceeded", Kind: kind, Violated: req.violated(),
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
	if err := answer.ErrorForRoutes(r, http.StatusServiceUnavailable, errUnavailable); err != nil {
		return err
	}
	p := answer.Problem{
		Detail: "The rate limit cannot be checked at the moment.", Status: http.StatusServiceUnavailable,
		Title: "Temporarily unavailable", Kind: answer.ProblemCapacity,
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
