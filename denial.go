package slidingwindow

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/munnerz/goautoneg"
	"go.uber.org/zap"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers-11.
const (
	problemQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is the body of an answer by itself (RFC 9457).
type problem struct {
	Detail     string   `json:"detail"`
	RetryAfter int64    `json:"retry_after,omitempty"`
	Status     int      `json:"status"`
	Title      string   `json:"title"`
	Type       string   `json:"type"`
	Violated   []string `json:"violated-policies,omitempty"`
}

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

	if err := h.errorForRoutes(r); err != nil {
		return err
	}
	detail := "This request can never pass: it costs more than the limit."
	switch {
	case req.keyless != nil:
		detail = "The request lacks what it is counted by."
	case req.retryAfter > 0:
		detail = "Try again in " + strconv.FormatInt(req.retryAfter, 10) + " s."
	}
	problem{
		Detail: detail, RetryAfter: req.retryAfter, Status: h.Status,
		Title: "Rate limit exceeded", Type: problemQuota, Violated: req.violated(),
	}.write(w, r, "Rate limit exceeded. "+detail)
	return nil
}

// unavailable answers a request on which nobody could decide. It returns no
// error: Caddy would log one line per request.
func (h *Handler) unavailable(w http.ResponseWriter, r *http.Request) error {
	w.Header()["Retry-After"] = []string{"1"}
	w.Header()["Cache-Control"] = []string{"no-store"}
	const detail = "The rate limit cannot be checked at the moment."
	problem{
		Detail: detail, Status: http.StatusServiceUnavailable,
		Title: "Temporarily unavailable", Type: problemCapacity,
	}.write(w, r, detail)
	return nil
}

// write answers with the problem, or in plain text if the client likes that
// better.
func (p problem) write(w http.ResponseWriter, r *http.Request, text string) {
	header := w.Header()
	if prefersText(r.Header.Get("Accept")) {
		header["Content-Type"] = []string{"text/plain; charset=utf-8"}
		w.WriteHeader(p.Status)
		_, _ = w.Write([]byte(text + "\n")) // the client may be gone
		return
	}
	body, _ := json.Marshal(&p) // strings and numbers only: it cannot fail
	header["Content-Type"] = []string{contentTypeProblem}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

const contentTypeProblem = "application/problem+json"

func prefersText(accept string) bool {
	if accept == "" || accept == "*/*" { // what most that are no browsers send
		return false
	}
	best := goautoneg.Negotiate(accept, []string{contentTypeProblem, "application/json", "text/plain", "text/html"})
	return best == "text/plain" || best == "text/html"
}

// errorForRoutes returns the error that stands for a denial if one of the server's
// error routes would answer it, which is known only by matching them.
func (h *Handler) errorForRoutes(r *http.Request) error {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil || len(server.Errors.Routes) == 0 {
		return nil
	}
	err := caddyhttp.Error(h.Status, errExceeded)
	if !routesAnswer(server.Errors.Routes, server.Errors.WithError(r, err)) {
		return nil
	}
	return err
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
