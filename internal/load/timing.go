package load

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/tee"
)

// measuring is how many configured zones measure answer times. While it is 0, the clock is not read.
var measuring atomic.Int64

// timingVar is the variable of the HTTP request with the *timing of the last handler that has one.
const timingVar = "sliding_window}timing"

// TimedRequest is a request that was admitted, in one handler.
type TimedRequest interface {
	// TimedZone returns one of the zones that count the request and measure answer times, the first
	// one for 0; nil after the last.
	TimedZone(i int) *Controller
	// Client returns whose request it is.
	Client() Client
	// DeniedLater reports whether a later handler has denied the request.
	DeniedLater() bool
}

// timing measures the time from the decision on a request until the status of its answer is known. Time that does not depend on the load of this Caddy is left out: limiters of later handlers that wait for
// their store, the body that a client still sends, connections that are taken over, and answers of
// this module.
type timing struct {
	tee.Writer
	req    TimedRequest
	outer  *timing       // of an earlier handler
	start  time.Duration // in uptime
	waited atomic.Int64  // for stores, in ns
	body   *timedBody    // nil: none
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
	if (err == io.EOF || b.read == b.length) && b.end.Load() == 0 {
		b.waited.Store(b.timing.waited.Load())
		b.end.Store(int64(uptime.Now()))
	}
	return n, err
}

// Serve calls the next handlers for a request, and measures how long they take. vars are the variables of
// the HTTP request; nil for none.
func Serve(w http.ResponseWriter, r *http.Request, req TimedRequest, vars map[string]any, next caddyhttp.Handler) error {
	t := &timing{req: req, start: uptime.Now()}
	t.Writer = *tee.New(w, r, t.begin)
	if vars != nil {
		t.outer, _ = vars[timingVar].(*timing)
		vars[timingVar] = t
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		t.body = &timedBody{ReadCloser: r.Body, timing: t, length: r.ContentLength}
		r.Body = t.body
	}
	returned, err := false, error(nil)
	defer func() { t.End(returned, err) }()
	err = next.ServeHTTP(t, r)
	returned = true
	return err
}

// begin notes that an answer begins.
func (t *timing) begin(status int, _ http.Header) io.Writer {
	switch {
	case t.Ending() == tee.Unanswered:
		t.left()
	case status != http.StatusSwitchingProtocols && !(t.Tunnel && status < 300):
		t.note(status)
	}
	return nil
}

// left notes that the client hung up before the answer. The time counts only if the back end is slow by then.
func (t *timing) left() {
	took, ok := t.took()
	if !ok || t.req.DeniedLater() {
		return
	}
	for i := 0; ; i++ {
		z := t.req.TimedZone(i)
		if z == nil {
			return
		}
		if took >= z.Hi() {
			z.Failed(t.req.Client())
		}
	}
}

// note counts an answer with a status.
func (t *timing) note(status int) {
	took, ok := t.took()
	if t.req.DeniedLater() {
		return
	}
	for i := 0; ; i++ {
		z := t.req.TimedZone(i)
		switch {
		case z == nil:
			return
		case status >= http.StatusInternalServerError:
			z.Failed(t.req.Client())
		case ok:
			z.Answered(t.req.Client(), took)
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

// Waiting returns the time, if anybody measures how long limiters wait for their stores; 0 otherwise.
func Waiting() time.Duration {
	if measuring.Load() == 0 {
		return 0
	}
	return uptime.Now()
}

// WaitedSince tells earlier handlers of a request that one has waited since a time of Waiting. vars are the
// variables of the HTTP request.
func WaitedSince(start time.Duration, vars map[string]any) {
	if start == 0 || vars == nil {
		return
	}
	t, _ := vars[timingVar].(*timing)
	for took := uptime.Now() - start; t != nil; t = t.outer {
		t.waited.Add(int64(took))
	}
}
