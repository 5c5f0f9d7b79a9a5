package request

import (
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/settler"
	"github.com/slidingwindow/caddy-sliding-window/internal/tee"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
)

// serve marks a request that was admitted, calls the next handlers for it, and makes it cost what its answer says. The fields
// of an API replace those that the answer has.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, req *request, held *slots, next caddyhttp.Handler) error {
	if req.isMarked {
		if err := h.mark(w, r, req); err != nil {
			return h.refuseBody(w, r, err)
		}
		req.traceMarks(r)
		held.add(req.marks)
	}
	if !h.settles && h.API == nil && held.none() {
		return h.serveTimed(w, r, req, next)
	}
	receipts := h.receipts(req)
	if req.marks != nil {
		receipts = append(receipts, h.receipts(req.marks)...)
	}
	strips := h.strippedFields(req)
	if len(receipts) == 0 && len(strips) == 0 && h.API == nil && held.none() {
		return h.serveTimed(w, r, req, next)
	}
	a := &settlingWriter{req: req, handler: h, receipts: receipts, strippedFields: strips, held: held}
	a.Writer = *tee.New(w, r, a.begin)
	if !held.none() {
		a.Closed = held.closed
	}
	returned, err := false, error(nil)
	defer func() { a.end(returned, err) }()
	err = h.serveTimed(a, r, req, next)
	returned = true
	return err
}

// serveTimed calls the next handlers for a request that was admitted, and measures how long they take if a zone needs
// that.
func (h *Handler) serveTimed(w http.ResponseWriter, r *http.Request, req *request, next caddyhttp.Handler) error {
	if !h.times || req.TimedZone(0) == nil {
		return next.ServeHTTP(w, r)
	}
	return load.Serve(w, r, &timedRequest{req, h.clients}, req.vars, next)
}

// receipt is that of a charge in a zone.
type receipt struct {
	settler.Receipt
	zone *zone.Live
}

// receipts returns those of a request that was admitted, for zones that settle.
func (h *Handler) receipts(req *request) []receipt {
	if len(req.decisions) == 0 || !req.allowed {
		return nil // no store decided, or the zones would deny it
	}
	var all []receipt
	for i, z := range req.zones {
		if !z.Settles() || req.charges[i].Cost == 0 {
			continue
		}
		if all == nil {
			all = make([]receipt, 0, len(req.zones)-i)
		}
		d := &req.decisionsOf(i)[0]
		all = append(all, receipt{zone: z})
		r := &all[len(all)-1]
		r.Charge, r.At, r.Former, r.Origin, r.InDoubt = req.charges[i], d.At, d.Former, req.origin, req.inDoubt
		r.Charge.Fields = nil
		h.Store.Settler.Admit(&r.Receipt, z.Counters.Settled)
	}
	return all
}

// settlingWriter writes the answer to a request that was admitted, and settles the receipts of the request.
type settlingWriter struct {
	tee.Writer
	req            *request
	handler        *Handler
	receipts       []receipt
	strippedFields []*compiled.Settle // whose header field is stripped
	header         http.Header        // of an answer that has begun
	readers        readers            // of its body
	pendingCharges []<-chan struct{}
	held           *slots
}

// begin settles what depends on the status and the header of the answer. It returns what reads the body
// for the rest.
func (a *settlingWriter) begin(status int, header http.Header) io.Writer {
	a.header = header
	denied := a.req.DeniedLater()
	unanswered := a.Ending() == tee.Unanswered || a.TooLong()
	upgraded := status == http.StatusSwitchingProtocols || a.Tunnel && status < 300
	if !a.held.none() {
		a.held.begun(upgraded, denied)
	}
	for i := range a.receipts {
		r := &a.receipts[i]
		switch s := r.zone.Settle; {
		case denied:
			a.handler.Store.Settler.Settle(&r.Receipt, 0)
		case s == nil && (unanswered || r.zone.CountIf.Match(status, header)): // the client does not choose what counts
			a.handler.Store.Settler.Settle(&r.Receipt, r.Charge.Cost)
		case s == nil:
			a.handler.Store.Settler.Settle(&r.Receipt, 0)
		case s.Source == nil:
			a.settle(r, s.FromHeader(a.tellingHeader(s)), status)
		case upgraded:
			a.settle(r, usage.Result{Missing: usage.NoUsage}, status)
		default:
			a.readers.add(s.Source, header)
		}
	}
	a.strip()
	a.handler.setAPIFields(header, a.req)
	if len(a.readers) == 0 {
		return nil
	}
	return a.readers
}

// settle settles a receipt by what an answer has told.
func (a *settlingWriter) settle(r *receipt, result usage.Result, status int) {
	if result.Missing != "" && a.Ending() == tee.Unanswered {
		result.Missing = usage.Aborted // whatever the header says of the body
	}
	units, missing := r.zone.Settle.CostOf(r.Charge.Cost, result, status, a.header)
	if status < http.StatusBadRequest && r.zone.Tier == "" {
		r.zone.NoteTold(a.handler.Logger, missing)
	}
	if missing != "" && r.zone.Tier == "" {
		r.zone.Counters.Missing[missing].Inc()
	}
	if done := a.handler.Store.Settler.Settle(&r.Receipt, units); done != nil {
		a.pendingCharges = append(a.pendingCharges, done)
	}
}

// end settles what is not settled when the handlers have returned, or panicked, which goes on. It returns
// when what the answer cost above the reservation is charged, so that no more passes above the limit than
// what was under way when the limit was reached.
func (a *settlingWriter) end(returned bool, err error) {
	a.settleRest(returned, err)
	if a.Hijacked && a.held != nil {
		a.held.hijacked = true
	}
	a.stripTrailers()
	for _, done := range a.pendingCharges {
		<-done
	}
}

func (a *settlingWriter) settleRest(returned bool, err error) {
	whole := a.End(returned, err) == tee.Complete
	results := a.readers.done(whole)
	for i := range a.receipts {
		if s := a.receipts[i].zone.Settle; s != nil && s.Source != nil && !a.receipts[i].Settled() {
			a.settle(&a.receipts[i], results[s.Source], a.Status)
		}
	}
}

// readers read what an answer costs, each for zones with the same source.
type readers []sourceReader

type sourceReader struct {
	*usage.Reader
	source *usage.Source
}

// add starts a reader for a source, unless the answer has one already.
func (rs *readers) add(s *usage.Source, header http.Header) {
	for _, r := range *rs {
		if r.source == s {
			return
		}
	}
	*rs = append(*rs, sourceReader{s.NewReader(header.Get("Content-Type"), header.Get("Content-Encoding")), s})
}

// Write implements io.Writer.
func (rs readers) Write(p []byte) (int, error) {
	for _, r := range rs {
		_, _ = r.Reader.Write(p) // it never fails
	}
	return len(p), nil
}

// done returns what the answer costs by each source.
func (rs readers) done(whole bool) map[*usage.Source]usage.Result {
	if rs == nil {
		return nil
	}
	results := make(map[*usage.Source]usage.Result, len(rs))
	for _, r := range rs {
		results[r.source] = r.Done(whole)
	}
	return results
}
