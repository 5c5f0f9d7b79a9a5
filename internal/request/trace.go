package request

import (
	"cmp"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
)

// The attributes of a span.
const (
	AttributeZone       = attribute.Key("rate_limit.zone")
	AttributeAllowed    = attribute.Key("rate_limit.allowed")
	AttributeSource     = attribute.Key("rate_limit.source")
	AttributeRetryAfter = attribute.Key("rate_limit.retry_after")
	AttributeKey        = attribute.Key("rate_limit.key")
	AttributeMarked     = attribute.Key("rate_limit.marked")
)

// Attributes are all of them.
var Attributes = []attribute.Key{AttributeZone, AttributeAllowed, AttributeSource, AttributeRetryAfter, AttributeKey, AttributeMarked}

// Words of AttributeSource. The others are those of [engine.Source], and [control.SourceOverride],
// [control.SourceBan] and [control.SourceAway].
const (
	sourceStore    = "store"
	sourceEmptyKey = "empty_key"
)

// spanOf returns the span of the request if Caddy's tracing handler has started one that is recorded; else nil. That handler
// sets the variable. To look for it is cheaper than to search all contexts of the request.
func (req *request) spanOf(r *http.Request) trace.Span {
	if req.vars["trace_id"] == nil {
		return nil
	}
	if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
		return span
	}
	return nil
}

// foresee returns the word for what decides on a request with a span, as far as that is known before the decision; empty
// without a span.
func (h *Handler) foresee(r *http.Request, req *request) string {
	if req.spanOf(r) == nil {
		return ""
	}
	return cmp.Or(string(h.Store.Foresee(req.charges)), sourceStore)
}

// trace says in the span of the request, if there is one, what was decided. A later handler that decides replaces it.
func (h *Handler) trace(r *http.Request, req *request, by string) {
	span := req.spanOf(r)
	if span == nil {
		return
	}
	var room [5]attribute.KeyValue
	zone, key := req.tracedZone()
	all := append(room[:0], AttributeZone.String(zone), AttributeAllowed.Bool(req.allowed), AttributeSource.String(req.decidedBy(by)))
	if !req.allowed && req.retryAfter > 0 {
		all = append(all, AttributeRetryAfter.Int64(req.retryAfter))
	}
	if h.LogKey && key != "" {
		all = append(all, AttributeKey.String(key))
	}
	span.SetAttributes(all...)
}

// traceMarks says in the span of the request, if there is one, which zones have marked it as one that they would deny.
func (req *request) traceMarks(r *http.Request) {
	span := req.spanOf(r)
	if span == nil || req.marks.allowed {
		return
	}
	if marked := req.marks.marked(); marked != nil {
		span.SetAttributes(AttributeMarked.StringSlice(marked))
	}
}

// tracedZone returns the zone with the tightest limit, and the request's key there; without a decision, the zone that decides in
// place of the store, or the first one.
func (req *request) tracedZone() (zone, key string) {
	if c := req.tightestCharge(); c != nil {
		return c.Zone, c.Key
	}
	if len(req.charges) > 0 {
		return req.charges[0].Zone, req.charges[0].Key
	}
	zone = req.tightestZone()
	if req.overridden == nil {
		return zone, ""
	}
	if zone == "" { // it is exempt
		zone = req.overridden.rules[0].zone.Name
	}
	return zone, req.overridden.key
}

// decidedBy returns the word for what has decided on the request: by, unless that was not known before.
func (req *request) decidedBy(by string) string {
	switch {
	case req.ban() != nil:
		return control.SourceBan
	case req.denyingRule() != nil:
		return control.SourceOverride
	case req.deniedBy != nil:
		return sourceEmptyKey
	case req.origin == engine.InProcess && len(req.decisions) > 0:
		return string(engine.SourceLocal)
	}
	return by
}
