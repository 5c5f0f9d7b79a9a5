package slidingwindow

import (
	"errors"
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// answered is the answer to a request that was admitted. It settles the receipts of the request.
type answered struct {
	answerWriter
	req      *request
	guard    *guard
	receipts []receipt
}

// serveSettled has the next handlers answer a request that was admitted, and gives back what its
// answer does not count.
func (h *Handler) serveSettled(w http.ResponseWriter, r *http.Request, req *request, next caddyhttp.Handler) error {
	receipts := h.receipts(req)
	if len(receipts) == 0 {
		return next.ServeHTTP(w, r)
	}
	a := &answered{req: req, guard: h.guard, receipts: receipts}
	a.answerWriter = *newAnswerWriter(w, r, a.begin)
	status := http.StatusInternalServerError // of a panic, which goes on
	defer func() { a.end(status) }()
	err := next.ServeHTTP(a, r)
	status = statusOf(err)
	return err
}

// statusOf returns the status of an answer that an error stands for.
func statusOf(err error) int {
	var of caddyhttp.HandlerError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &of) && of.StatusCode != 0:
		return of.StatusCode
	}
	return http.StatusInternalServerError
}

// begin settles what depends on the status and the header of the answer.
func (a *answered) begin(status int, header http.Header) io.Writer {
	denied := a.req.deniedLater()
	for i := range a.receipts {
		r := &a.receipts[i]
		units := int64(0)
		if !denied && r.zone.CountIf.Match(status, header) {
			units = r.Charge.Cost
		}
		a.guard.settler.settle(r, units)
	}
	return nil
}

// end settles what is not settled when the handlers have returned. status is that of an answer which
// they have not begun.
func (a *answered) end(status int) {
	if a.status != 0 {
		return
	}
	if a.request.Context().Err() == nil {
		a.decided(status)
		return
	}
	for i := range a.receipts { // the client has gone: it does not choose what counts
		a.guard.settler.settle(&a.receipts[i], a.receipts[i].Charge.Cost)
	}
}

// deniedLater reports whether a later handler of this module has denied the request.
func (req *request) deniedLater() bool {
	last, _ := req.vars[requestVar].(*request)
	return last != nil && last != req && !last.allowed
}
