package slidingwindow

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/tee"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
)

// timings is how many configured zones measure answer times. While it is 0 nobody looks at the clock.
var timings atomic.Int64

// times reports whether the zone measures answer times.
func (z *Zone) times() bool { return z.load != nil && z.load.timed }

// timingVar is the variable of the HTTP request with the *timing of the last handler that has one.
const timingVar = "sliding_window}timing"

// timing measures the time from the decision on a request until the status of its answer is known. What
// does not depend on the load of this Caddy is left out: limiters of later handlers that wait for
// their store, the body that a client still sends, connections that are taken over, and answers of
// this module.
type timing struct {
	tee.Writer
	req    *request
	outer  *timing       // of an earlier handler
	start  time.Duration // in uptime
	waited atomic.Int64  // for stores, in ns
	body   *timedBody    // nil: none
	noted  bool
}

// timedBody is the body of a request. The transport of a proxy may read it beside the answer.
type timedBody struct {
	io.ReadCloser
	timing *timing
	length int64        // -1: not known
	read   int64        // by the reader alone
	waited atomic.Int64 // by stores, until it was read
	end    atomic.Int64 // in uptime: when it was read to its end; 0: not yet
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if (err == io.EOF || b.read == b.length) && b.end.Load() == 0 { //nolint:errorlint // readers return it as it is
		b.waited.Store(b.timing.waited.Load())
		b.end.Store(int64(uptime.Now()))
	}
	return n, err
}

// serveTimed has the next handlers answer a request that was admitted, and measures how long they take
// if a zone wants to know.
func (h *Handler) serveTimed(w http.ResponseWriter, r *http.Request, req *request, next caddyhttp.Handler) error {
	if !h.times || !req.timed() {
		return next.ServeHTTP(w, r)
	}
	t := &timing{req: req, start: uptime.Now()}
	t.Writer = *tee.New(w, r, t.begin)
	if req.vars != nil {
		t.outer, _ = req.vars[timingVar].(*timing)
		req.vars[timingVar] = t
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		t.body = &timedBody{ReadCloser: r.Body, timing: t, length: r.ContentLength}
		r.Body = t.body
	}
	returned, err := false, error(nil)
	defer func() { t.end(returned, err) }()
	err = next.ServeHTTP(t, r)
	returned = true
	return err
}

// timed reports whether a zone that counts the request measures answer times.
func (req *request) timed() bool {
	for range req.timedZones {
		return true
	}
	return false
}

// timedZones are those that count the request and measure answer times.
func (req *request) timedZones(yield func(*Zone) bool) {
	for _, z := range req.zones {
		if z.times() && !yield(z) {
			return
		}
	}
	if req.shadows == nil {
		return
	}
	for i := range *req.shadows {
		if s := &(*req.shadows)[i]; s.applies && s.zone.times() && !yield(s.zone) {
			return
		}
	}
}

// begin notes that an answer begins.
func (t *timing) begin(status int, _ http.Header) io.Writer {
	if status != http.StatusSwitchingProtocols && !(t.Tunnel && status < 300) {
		t.note(status)
	} else {
		t.noted = true
	}
	return nil
}

// end notes an answer that had not begun when the handlers returned, or panicked.
func (t *timing) end(returned bool, err error) {
	switch {
	case t.noted:
	case t.Request.Context().Err() != nil: // the client has gone, and how long it waited is its own affair
		if took, ok := t.took(); ok {
			for z := range t.req.timedZones {
				if took >= z.load.Hi() {
					z.load.Failed()
				}
			}
		}
	case returned:
		t.note(statusOf(err))
	default:
		t.note(http.StatusInternalServerError)
	}
}

// note counts an answer with a status.
func (t *timing) note(status int) {
	took, ok := t.took()
	if t.noted = true; t.req.deniedLater() {
		return
	}
	for z := range t.req.timedZones {
		switch {
		case status >= http.StatusInternalServerError:
			z.load.Failed()
		case ok:
			z.load.Answered(took)
		}
	}
}

// took returns the time until now, and whether all of the request was there.
func (t *timing) took() (time.Duration, bool) {
	from, waited := t.start, t.waited.Load()
	if t.body != nil {
		end := t.body.end.Load()
		if end == 0 {
			return 0, false
		}
		from, waited = time.Duration(end), waited-t.body.waited.Load()
	}
	return uptime.Now() - from - time.Duration(waited), true
}

// waiting returns the time, if anybody measures how long limiters wait for their stores.
func waiting() time.Duration {
	if timings.Load() == 0 {
		return 0
	}
	return uptime.Now()
}

// waitedSince tells earlier handlers that this one has waited.
func (req *request) waitedSince(start time.Duration) {
	if start == 0 || req.vars == nil {
		return
	}
	t, _ := req.vars[timingVar].(*timing)
	for took := uptime.Now() - start; t != nil; t = t.outer {
		t.waited.Add(int64(took))
	}
}
