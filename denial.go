package slidingwindow

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/munnerz/goautoneg"
	"go.uber.org/zap"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers-11.
const (
	problemQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	problemCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	problemOfStatus = "about:blank" // no more than the status says (RFC 9457, 4.2.1)
)

// problem is the body of an answer by itself (RFC 9457). Its texts hold nothing that
// JSON would escape.
type problem struct {
	detail     string
	retryAfter int64 // left out if 0
	status     int
	title      string
	kind       string   // the type
	violated   []string // left out if empty
}

// append writes the problem as JSON, its members in the order of their names.
func (p *problem) append(b []byte) []byte {
	b = append(b, `{"detail":"`...)
	b = append(b, p.detail...)
	if p.retryAfter != 0 {
		b = append(b, `","retry_after":`...)
		b = strconv.AppendInt(b, p.retryAfter, 10)
		b = append(b, `,"status":`...)
	} else {
		b = append(b, `","status":`...)
	}
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = append(b, `,"title":"`...)
	b = append(b, p.title...)
	b = append(b, `","type":"`...)
	b = append(b, p.kind...)
	separator := `","violated-policies":["`
	for _, name := range p.violated {
		b = append(b, separator...)
		b = append(b, name...)
		separator = `","`
	}
	if len(p.violated) > 0 {
		return append(b, `"]}`...)
	}
	return append(b, `"}`...)
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
	kind := problemQuota
	if h.loads && req.reduced() {
		kind = problemCapacity
	}
	req.retryAfter = h.retryAfter(req.wait())
	retryAfter := strconv.FormatInt(req.retryAfter, 10)
	header, lines := w.Header(), new([2][1]string)
	forgetBody(header)
	lines[0][0], lines[1][0] = "no-store", retryAfter
	header["Cache-Control"] = lines[0][:]
	if req.retryAfter > 0 {
		header["Retry-After"] = lines[1][:]
	}
	h.logDenial(req)

	status, cause := h.denialStatus(req)
	if err := errorForRoutes(r, status, cause); err != nil {
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
	p := problem{
		detail: detail, retryAfter: req.retryAfter, status: status,
		title: "Rate limit exceeded", kind: kind, violated: req.violated(),
	}
	if cause == errNoKey && status != http.StatusTooManyRequests { //nolint:errorlint // it is that very error
		p.title, p.kind = cmp.Or(http.StatusText(status), "Request denied"), problemOfStatus
	}
	p.write(w, r)
	return nil
}

// unavailable answers a request on which nobody could decide: through the error routes,
// if one answers, else by itself. Caddy would log an error that no route answers, one
// line per request.
func (h *Handler) unavailable(w http.ResponseWriter, r *http.Request, req *request) error {
	req.retryAfter = 1
	forgetBody(w.Header())
	w.Header()["Retry-After"] = []string{"1"}
	w.Header()["Cache-Control"] = []string{"no-store"}
	if err := errorForRoutes(r, http.StatusServiceUnavailable, errUnavailable); err != nil {
		return err
	}
	p := problem{
		detail: "The rate limit cannot be checked at the moment.", status: http.StatusServiceUnavailable,
		title: "Temporarily unavailable", kind: problemCapacity,
	}
	p.write(w, r)
	return nil
}

// forgetBody takes from an answer what an earlier handler said of another body.
func forgetBody(header http.Header) {
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		delete(header, name)
	}
}

// write answers with the problem, or in plain text if the client likes that
// better.
func (p *problem) write(w http.ResponseWriter, r *http.Request) {
	room := bodies.Get().(*[]byte)
	contentType, body := contentTypeProblem, (*room)[:0]
	if prefersText(strings.Join(r.Header["Accept"], ",")) {
		contentType = "text/plain; charset=utf-8"
		body = append(body, p.title+". "+p.detail+"\n"...)
	} else {
		body = p.append(body)
	}
	w.Header()["Content-Type"] = []string{contentType}
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // the client may be gone
	*room = body
	bodies.Put(room)
}

// bodies pools buffers for response bodies; Write does not retain its argument.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

const contentTypeProblem = "application/problem+json"

func prefersText(accept string) bool {
	if accept == "" || accept == "*/*" { // what most that are no browsers send
		return false
	}
	clauses := goautoneg.ParseAccept(accept)
	asJSON := max(quality(clauses, "application", "problem+json"), quality(clauses, "application", "json"))
	return max(quality(clauses, "text", "plain"), quality(clauses, "text", "html")) > asJSON
}

// quality returns how well a client likes a type, from 0 for not at all to 1. Of the
// clauses that take it in, the narrowest one says it (RFC 9110, 12.5.1).
func quality(clauses []goautoneg.Accept, kind, subtype string) float64 {
	var narrowest int
	var q float64
	for _, c := range clauses {
		narrow := 0
		switch {
		case c.Type == "*" && c.SubType == "*":
			narrow = 1
		case !strings.EqualFold(c.Type, kind):
		case c.SubType == "*":
			narrow = 2
		case strings.EqualFold(c.SubType, subtype):
			narrow = 3
		}
		if narrow > narrowest {
			narrowest, q = narrow, c.Q
		}
	}
	return q
}

// errorForRoutes returns the error to pass on for a denial if one of the server's error
// routes would answer it, else nil. Only matching the routes tells.
func errorForRoutes(r *http.Request, status int, cause error) error {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Errors == nil || len(server.Errors.Routes) == 0 {
		return nil
	}
	if r.Context().Value(caddyhttp.ErrorCtxKey) != nil {
		return nil // an error of an error route is answered by nobody
	}
	err := caddyhttp.Error(status, cause)
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
		if req.denyingRule() != nil {
			fields = append(fields, zap.String("key", req.overridden.key))
		}
	}
	c.Write(fields...)
}
