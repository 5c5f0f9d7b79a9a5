package slidingwindow

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/settler"
	"github.com/slidingwindow/caddy-sliding-window/internal/tee"
	"github.com/slidingwindow/caddy-sliding-window/internal/usage"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// landingLast is the longest that a request waits for units that come back, and for the turns of others.
const landingLast = 250 * time.Millisecond

// decideSettled is decide for a handler with zones that settle. A denied request is decided on once
// more if units came back in a zone that denies it since it was sent, or are about to: a client that has
// its answer has its unit back. It waits for those that are on their way when it is denied, and for no
// later ones. Requests that come by then wait for its second decision: they could take the room that came
// back, beside a unit of their client's request before. While other receipts of the counter are not settled,
// room may come back before the limit tells, so that such a denial holds for a second at most.
func (h *Handler) decideSettled(ctx context.Context, req *request) error {
	flying := h.store.Settler.InFlight()
	wait := patience{ctx: ctx}
	defer wait.stop()
	var room [4]uint64
	before := room[:0]
	for i, z := range req.zones {
		before = append(before, 0)
		if z.settles() {
			counter := flying.Counter(&req.charges[i])
			wait.until(flying.Turns(counter))
			before[i] = flying.RefundsOf(counter).Load()
		}
	}
	if err := h.decide(ctx, req); err != nil || req.allowed {
		return err
	}
	if err := h.decideAgain(ctx, req, before, &wait); err != nil || req.allowed {
		return err
	}
	for i, z := range req.zones {
		if z.CountIf == nil || !flying.Any(flying.Counter(&req.charges[i])) {
			continue
		}
		for j := range req.decisionsOf(i) {
			if d := &req.decisionsOf(i)[j]; !d.Allowed && d.RetryAfter != window.Never {
				d.RetryAfter = min(d.RetryAfter, time.Second)
				d.EffectiveWindow = min(d.EffectiveWindow, time.Second)
			}
		}
	}
	return nil
}

// decideAgain decides once more on a denied request if units came back in a zone that denies it, since they were as
// often given back as before says, or are about to.
func (h *Handler) decideAgain(ctx context.Context, req *request, before []uint64, wait *patience) error {
	flying := h.store.Settler.InFlight()
	came := false
	for i, z := range req.zones {
		if !z.settles() || window.Allowed(req.decisionsOf(i)) {
			continue
		}
		counter := flying.Counter(&req.charges[i])
		turn := flying.Turn(counter)
		defer flying.EndTurn(counter, turn)
		landed := flying.PendingRefunds(counter)
		came = came || landed != nil || flying.RefundsOf(counter).Load() != before[i]
		wait.until(landed)
	}
	if !came || ctx.Err() != nil {
		return nil
	}
	return h.decide(ctx, req)
}

// patience is what a request waits with: landingLast at most, all told, and no longer than its client.
type patience struct {
	ctx   context.Context
	timer *time.Timer // nil: it has not waited yet
	over  bool
}

// until waits until done is closed. It does not wait if done is nil.
func (p *patience) until(done <-chan struct{}) {
	if done == nil || p.over {
		return
	}
	if p.timer == nil {
		p.timer = time.NewTimer(landingLast)
	}
	select {
	case <-done:
	case <-p.timer.C:
		p.over = true
	case <-p.ctx.Done():
		p.over = true
	}
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// unsettled returns the places of charges that get receipts.
func (h *Handler) unsettled(req *request) (places []int) {
	for i, z := range req.zones {
		if z.settles() {
			places = append(places, i)
		}
	}
	return places
}

// receipt is that of a charge in a zone.
type receipt struct {
	settler.Receipt
	zone *liveZone
}

// receipts returns those of a request that was admitted, for zones that settle.
func (h *Handler) receipts(req *request) []receipt {
	if len(req.decisions) == 0 {
		return nil // nobody decided
	}
	var all []receipt
	for i, z := range req.zones {
		if !z.settles() || req.charges[i].Cost == 0 {
			continue
		}
		if all == nil {
			all = make([]receipt, 0, len(req.zones)-i)
		}
		d := &req.decisionsOf(i)[0]
		all = append(all, receipt{zone: z})
		r := &all[len(all)-1]
		r.Charge, r.At, r.Former, r.Origin, r.Unsure = req.charges[i], d.At, d.Former, req.place, req.unsure
		r.Charge.Fields = nil
		h.store.Settler.Admit(&r.Receipt, z.counters.settled.zone)
	}
	return all
}

// answered is the answer to a request that was admitted. It settles the receipts of the request.
type answered struct {
	tee.Writer
	req      *request
	handler  *Handler
	receipts []receipt
	strips   []*Settle   // that take a field off
	header   http.Header // of an answer that has begun
	readers  readers     // of its body
	landing  []<-chan struct{}
}

// serveSettled has the next handlers answer a request that was admitted, and makes it cost
// what its answer says. The fields of an API take the place of those that the answer has.
func (h *Handler) serveSettled(w http.ResponseWriter, r *http.Request, req *request, next caddyhttp.Handler) error {
	if !h.settles && h.api == nil {
		return h.serveTimed(w, r, req, next)
	}
	receipts := h.receipts(req)
	strips := h.strips(req)
	if len(receipts) == 0 && len(strips) == 0 && h.api == nil {
		return h.serveTimed(w, r, req, next)
	}
	a := &answered{req: req, handler: h, receipts: receipts, strips: strips}
	a.Writer = *tee.New(w, r, a.begin)
	returned, err := false, error(nil)
	defer func() { a.end(returned, err) }()
	err = h.serveTimed(a, r, req, next)
	returned = true
	return err
}

// begin settles what depends on the status and the header of the answer. It returns what reads the body
// for the rest.
func (a *answered) begin(status int, header http.Header) io.Writer {
	a.header = header
	denied := a.req.DeniedLater()
	unanswered := a.Ending() == tee.Unanswered || a.TooLong()
	upgraded := status == http.StatusSwitchingProtocols || a.Tunnel && status < 300
	for i := range a.receipts {
		r := &a.receipts[i]
		switch s := r.zone.Settle; {
		case denied:
			a.handler.store.Settler.Settle(&r.Receipt, 0)
		case s == nil && (unanswered || r.zone.CountIf.Match(status, header)): // the client does not choose what counts
			a.handler.store.Settler.Settle(&r.Receipt, r.Charge.Cost)
		case s == nil:
			a.handler.store.Settler.Settle(&r.Receipt, 0)
		case s.source == nil:
			a.tell(r, s.fromHeader(a.tellingHeader(s)), status)
		case upgraded:
			a.tell(r, usage.Result{Missing: usage.NoUsage}, status)
		default:
			a.readers.add(s.source, header)
		}
	}
	a.strip()
	a.handler.setAPIFields(header, a.req)
	if len(a.readers) == 0 {
		return nil
	}
	return a.readers
}

// tell settles a receipt by what an answer has told.
func (a *answered) tell(r *receipt, result usage.Result, status int) {
	if result.Missing != "" && a.Ending() == tee.Unanswered {
		result.Missing = usage.Aborted // whatever the header says of the body
	}
	units, missing := r.zone.Settle.cost(r.Charge.Cost, result, status, a.header)
	if status < http.StatusBadRequest {
		r.zone.use.seeking.note(a.handler.logger, r.zone, missing)
	}
	if missing != "" {
		r.zone.counters.settled.missing[missing].Inc()
	}
	if done := a.handler.store.Settler.Settle(&r.Receipt, units); done != nil {
		a.landing = append(a.landing, done)
	}
}

// end settles what is not settled when the handlers have returned, or panicked, which goes on. It returns
// when what the answer cost above the reservation is charged, so that no more passes above the limit than
// what was under way when the limit was reached.
func (a *answered) end(returned bool, err error) {
	a.settleRest(returned, err)
	a.stripTrailers()
	for _, done := range a.landing {
		<-done
	}
}

func (a *answered) settleRest(returned bool, err error) {
	whole := a.End(returned, err) == tee.Complete
	results := a.readers.done(whole)
	for i := range a.receipts {
		if s := a.receipts[i].zone.Settle; s != nil && s.source != nil && !a.receipts[i].Settled() {
			a.tell(&a.receipts[i], results[s.source], a.Status)
		}
	}
}

// readers read what an answer costs, each for zones with the same source.
type readers []sourceReader

type sourceReader struct {
	*usage.Reader
	source *usage.Source
}

// add has an answer with a header read, unless it is read already.
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
	results := make(map[*usage.Source]usage.Result, len(rs))
	for _, r := range rs {
		results[r.source] = r.Done(whole)
	}
	return results
}

// DeniedLater implements load.TimedRequest. It reports whether a later handler of this module has denied the request.
func (req *request) DeniedLater() bool {
	last, _ := req.vars[requestVar].(*request)
	return last != nil && last != req && !last.allowed
}

// chargedBefore reports whether an earlier handler has charged the request in a zone.
func (req *request) chargedBefore(z *liveZone) bool {
	earlier, _ := req.vars[requestVar].(*request)
	for ; earlier != nil; earlier = earlier.previous {
		if earlier.allowed && earlier.decisions != nil && slices.ContainsFunc(earlier.zones, func(other *liveZone) bool { return other.use == z.use }) {
			return true
		}
	}
	return false
}

// seekLast is how many whole answers of a zone may tell no cost, from the first one on, before the log
// says so.
const seekLast = 100

// seeking notices a zone with settle that never finds what it looks for.
type seeking struct {
	found  atomic.Bool
	missed atomic.Int64
}

// note notes an answer without an error, and why it did not tell its cost, if so. An answer that was cut off says nothing
// about those that are not.
func (s *seeking) note(logger *zap.Logger, z *liveZone, missing usage.Reason) {
	switch {
	case s.found.Load() || missing == usage.Aborted:
	case missing == "":
		s.found.Store(true)
	case s.missed.Add(1) == seekLast:
		logger.Warn("answers of a zone with settle never tell what they cost; on_missing decides",
			zap.String("zone", z.Name), zap.Int("answers", seekLast), zap.String("last_reason", string(missing)))
	}
}
