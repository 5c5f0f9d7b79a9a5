package tee

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// Ending is how an answer ended.
type Ending uint8

const (
	// Complete answers were passed on as a whole. What the client does after the last byte changes nothing.
	Complete Ending = iota
	// Cut answers were broken off by the handlers, as when the back end did.
	Cut
	// Left answers lack a part because the client had gone.
	Left
	// Unanswered requests are those whose client had gone before the answer began. Their status is not that of an answer: Caddy's
	// reverse_proxy itself writes 499 then, which other handlers may replace. A back end may have acted on them.
	Unanswered
)

// progress is what happens to an answer.
type progress struct {
	request    *requestBody // nil: the request has none
	unanswered bool
	failed     bool  // a write did
	passed     bool  // the handlers have returned without an error
	length     int64 // of the body, as declared; -1: not declared
	written    int64
}

// requestBody is the body of a request. It is read by one goroutine at a time, which may be another one than that of
// the answer.
type requestBody struct {
	io.ReadCloser
	broken, tooLong, closed atomic.Bool
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		var most *http.MaxBytesError
		if errors.As(err, &most) {
			b.tooLong.Store(true)
		} else {
			b.broken.Store(true)
		}
	}
	return n, err
}

// Close implements io.Closer. Reads after it fail, which is not the client's doing.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// gone reports whether the client has closed the connection or reset the stream, or did not send what it had announced.
func (a *Writer) gone() bool {
	return errors.Is(a.Request.Context().Err(), context.Canceled) || a.so.request != nil && a.so.request.broken.Load()
}

// TooLong reports whether the body of the request was longer than an outer request_body allows. An answer is then that
// of Caddy, whatever a back end has made of the first part.
func (a *Writer) TooLong() bool { return a.so.request != nil && a.so.request.tooLong.Load() }

// began notes how long the body is to become.
func (a *Writer) began() {
	a.so.unanswered = a.gone()
	a.so.length = -1
	if a.Request.Method == http.MethodHead || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified {
		a.so.length = 0
	} else if n, err := strconv.ParseInt(a.Header().Get("Content-Length"), 10, 64); err == nil {
		a.so.length = n
	}
}

// wrote notes that a part of the body was written, or was not.
func (p *progress) wrote(n int64, err error) {
	p.written += n
	p.failed = p.failed || err != nil
}

// End notes that the handlers have returned err or, unless returned, have panicked. If no answer had begun by then,
// Caddy answers outside, with the status of the error. It returns how the answer ended.
func (a *Writer) End(returned bool, err error) Ending {
	switch {
	case a.Status != 0:
		a.so.passed = returned && err == nil
	case returned:
		a.Decided(StatusOf(err))
		a.so.length = 0 // here
	default:
		a.Decided(http.StatusInternalServerError)
	}
	return a.Ending()
}

// Ending returns how the answer has ended or, before End, how it would have ended if no more of it came. This is
// the only place that tells so. From the time when the answer begins it knows Unanswered ones.
//
// An answer is Complete as soon as its last byte is written: all of its Content-Length, or the head if HEAD, 204 or 304
// make that all. A client may close the connection then, before the handlers return. Without a Content-Length the
// handlers have to return while the client is there: reverse_proxy panics if it could not pass on the whole
// body, whether the back end or the client broke it off, but other handlers may return without an error.
func (a *Writer) Ending() Ending {
	p := &a.so
	switch {
	case p.unanswered:
		return Unanswered
	case p.length >= 0 && p.written >= p.length:
		return Complete
	case p.failed || a.gone():
		return Left
	case p.passed && p.length < 0 && a.Request.Context().Err() == nil:
		return Complete
	}
	return Cut
}
