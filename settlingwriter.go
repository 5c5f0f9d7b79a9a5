package slidingwindow

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// settlingWriter looks at the status line of an answer, and settles the receipts of its request as soon as
// it is known. Everything passes at once.
type settlingWriter struct {
	*caddyhttp.ResponseWriterWrapper
	request  *request
	guard    *guard
	receipts []receipt
	known    bool // the status
}

// serveSettled has the next handlers answer a request that was admitted, and gives back what its
// answer does not count.
func (h *Handler) serveSettled(w http.ResponseWriter, r *http.Request, req *request, next caddyhttp.Handler) error {
	receipts := h.receipts(req)
	if len(receipts) == 0 {
		return next.ServeHTTP(w, r)
	}
	a := &settlingWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, request: req, guard: h.guard, receipts: receipts}
	status := http.StatusInternalServerError // of a panic, which goes on
	defer func() {
		if r.Context().Err() != nil {
			a.keep() // the client has gone: it does not choose what counts
		} else {
			a.is(status)
		}
	}()
	err := next.ServeHTTP(a, r)
	var of caddyhttp.HandlerError
	switch {
	case err == nil:
		status = http.StatusOK
	case errors.As(err, &of) && of.StatusCode != 0:
		status = of.StatusCode
	}
	return err
}

// is settles by the status of the answer, and by the header as it is now.
func (a *settlingWriter) is(status int) {
	if a.known {
		return
	}
	a.known = true
	denied := a.request.deniedLater()
	for i := range a.receipts {
		r := &a.receipts[i]
		units := int64(0)
		if !denied && r.zone.CountIf.Match(status, a.Header()) {
			units = r.Charge.Cost
		}
		a.guard.settler.settle(r, units)
	}
}

// keep has all units count.
func (a *settlingWriter) keep() {
	if a.known {
		return
	}
	a.known = true
	for i := range a.receipts {
		a.guard.settler.settle(&a.receipts[i], a.receipts[i].Charge.Cost)
	}
}

// deniedLater reports whether a later handler of this module has denied the request.
func (req *request) deniedLater() bool {
	last, _ := req.vars[requestVar].(*request)
	return last != nil && last != req && !last.allowed
}

// WriteHeader implements http.ResponseWriter. Statuses of 1xx announce another, but for 101.
func (a *settlingWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		a.is(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *settlingWriter) Write(b []byte) (int, error) {
	a.is(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (a *settlingWriter) ReadFrom(r io.Reader) (int64, error) {
	a.is(http.StatusOK)
	return a.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError flushes, for http.ResponseController.
func (a *settlingWriter) FlushError() error {
	a.is(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush() //nolint:bodyclose // there is none
}

// Flush implements http.Flusher.
func (a *settlingWriter) Flush() { _ = a.FlushError() }

// Hijack implements http.Hijacker.
func (a *settlingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack() //nolint:bodyclose // there is none
	if err == nil {
		a.is(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Interface guards.
var (
	_ http.ResponseWriter = (*settlingWriter)(nil)
	_ http.Flusher        = (*settlingWriter)(nil)
	_ http.Hijacker       = (*settlingWriter)(nil)
	_ http.Pusher         = (*settlingWriter)(nil)
	_ io.ReaderFrom       = (*settlingWriter)(nil)
)
