package slidingwindow

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/munnerz/goautoneg"
	"go.uber.org/zap"
	"schneider.vip/problem"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers-11.
const (
	problemQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

var errExceeded = errors.New("rate limit exceeded")

// deny answers a request that a limit denies: through the error routes, if one
// answers, else by itself.
func (h *Handler) deny(w http.ResponseWriter, r *http.Request, req *request) error {
	header := w.Header()
	req.retryAfter = h.retryAfter(req.wait())
	if req.retryAfter > 0 {
		header["Retry-After"] = []string{strconv.FormatInt(req.retryAfter, 10)}
	}
	header["Cache-Control"] = []string{"no-store"}
	h.logDenial(req)

	err := caddyhttp.Error(h.Status, errExceeded)
	if errorRouteAnswers(r, err) {
		return err
	}
	detail := "This request can never pass: it costs more than the limit."
	switch {
	case req.keyless != nil:
		detail = "The request lacks what it is counted by."
	case req.retryAfter > 0:
		detail = fmt.Sprintf("Try again in %d s.", req.retryAfter)
	}
	options := []problem.Option{
		problem.Type(problemQuota), problem.Title("Rate limit exceeded"), problem.Status(h.Status),
		problem.Detail(detail), problem.Custom("violated-policies", req.violated()),
	}
	if req.retryAfter > 0 {
		options = append(options, problem.Custom("retry_after", req.retryAfter))
	}
	writeProblem(w, r, h.Status, "Rate limit exceeded. "+detail, options)
	return nil
}

// unavailable answers a request on which nobody could decide. It returns no
// error: Caddy would log one line per request.
func (h *Handler) unavailable(w http.ResponseWriter, r *http.Request) error {
	w.Header()["Retry-After"] = []string{"1"}
	w.Header()["Cache-Control"] = []string{"no-store"}
	const detail = "The rate limit cannot be checked at the moment."
	writeProblem(w, r, http.StatusServiceUnavailable, detail, []problem.Option{
		problem.Type(problemCapacity), problem.Title("Temporarily unavailable"),
		problem.Status(http.StatusServiceUnavailable), problem.Detail(detail),
	})
	return nil
}

// writeProblem answers with problem details (RFC 9457), or in plain text if the
// client likes that better.
func writeProblem(w http.ResponseWriter, r *http.Request, status int, text string, options []problem.Option) {
	switch goautoneg.Negotiate(r.Header.Get("Accept"), []string{problem.ContentTypeJSON, "application/json", "text/plain", "text/html"}) {
	case "text/plain", "text/html":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text + "\n")) // the client may be gone
	default:
		_, _ = problem.New(options...).WriteTo(w)
	}
}

// errorRouteAnswers reports whether one of the server's error routes would
// answer err, which is known only by matching them.
func errorRouteAnswers(r *http.Request, err error) bool {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil || len(server.Errors.Routes) == 0 {
		return false
	}
	return routesAnswer(server.Errors.Routes, server.Errors.WithError(r, err))
}

func routesAnswer(routes caddyhttp.RouteList, r *http.Request) bool {
	for _, route := range routes {
		if len(route.MatcherSets) > 0 {
			if matches, err := route.MatcherSets.AnyMatchWithError(r); err == nil && !matches {
				continue
			}
		}
		for _, handler := range route.Handlers {
			subroute, ok := handler.(*caddyhttp.Subroute)
			if !ok || routesAnswer(subroute.Routes, r) {
				return true
			}
		}
	}
	return false
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
	}
	c.Write(fields...)
}
