package tee

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// failing is a ResponseWriter whose client does not take the body.
type failing struct{ *httptest.ResponseRecorder }

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// How an answer ended depends on what was written, on the request's body and, where these do not tell, on how the
// handlers returned and whether the client is there.
func TestEnding(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		body   io.Reader // of the request
		length string
		status int // 0: none
		writes string
		before bool // the client goes before the answer
		after  bool // after what is written
		fails  bool
		panics bool
		err    error
		want   Ending
	}{
		{name: "whole", status: 200, writes: "text", want: Complete},
		{name: "nothing", want: Complete},
		{name: "an error that is answered outside", err: caddyhttp.Error(502, nil), length: "9", want: Complete},
		{name: "a panic before it", panics: true, want: Cut},
		{name: "an error in it", status: 200, writes: "te", err: io.EOF, want: Cut},
		{name: "a panic in it", status: 200, writes: "te", panics: true, want: Cut},
		{name: "cut, of a length", status: 200, writes: "te", length: "4", want: Cut},
		{name: "gone before it", before: true, want: Unanswered},
		{name: "gone before it, and 499", before: true, status: 499, want: Unanswered},
		{name: "gone before it, and HEAD", before: true, method: "HEAD", status: 499, want: Unanswered},
		{name: "gone before it, and an error", before: true, err: caddyhttp.Error(499, nil), want: Unanswered},
		{name: "gone before it, and a panic", before: true, panics: true, want: Unanswered},
		{name: "gone before it, and another status", before: true, status: 200, writes: "text", length: "4", want: Unanswered},
		{name: "499 of a back end", status: 499, writes: "text", want: Complete},
		{name: "gone in it", status: 200, writes: "te", length: "4", after: true, panics: true, want: Left},
		{name: "gone in one without a length", status: 200, writes: "te", after: true, want: Left},
		{name: "a write fails", status: 200, writes: "text", length: "4", fails: true, want: Left},
		{name: "gone after the last byte", status: 200, writes: "text", length: "4", after: true, want: Complete},
		{name: "gone after the last byte, and a panic", status: 200, writes: "text", length: "4", after: true, panics: true, want: Complete},
		{name: "gone after one of no length", status: 500, length: "0", after: true, want: Complete},
		{name: "gone after HEAD", method: "HEAD", status: 404, length: "4", after: true, want: Complete},
		{name: "gone after 204", status: 204, after: true, want: Complete},
		{name: "gone after 304", status: 304, length: "4", after: true, want: Complete},
		{name: "a body in 304", status: 304, writes: "text", fails: true, want: Complete},
		{name: "the request breaks off", body: io.MultiReader(strings.NewReader("x"), broken{io.ErrUnexpectedEOF}), status: 502, want: Unanswered},
		{name: "the request is too long", body: http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("text")), 1), err: caddyhttp.Error(413, nil), want: Complete},
		{name: "the request is whole", body: strings.NewReader("text"), status: 200, want: Complete},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.method == "" {
				c.method = http.MethodPost
			}
			r := httptest.NewRequestWithContext(ctx, c.method, "/", c.body)
			w := http.ResponseWriter(httptest.NewRecorder())
			if c.fails {
				w = failing{httptest.NewRecorder()}
			}
			var atHead Ending
			var a *Writer
			a = New(w, r, func(int, http.Header) io.Writer { atHead = a.Ending(); return nil })
			_, _ = io.Copy(io.Discard, r.Body)
			if c.before {
				cancel()
			}
			if c.length != "" {
				a.Header().Set("Content-Length", c.length)
			}
			if c.status != 0 {
				a.WriteHeader(c.status)
			}
			if c.writes != "" {
				_, _ = io.WriteString(a, c.writes)
			}
			if c.after {
				cancel()
			}
			if got := a.End(!c.panics, c.err); got != c.want {
				t.Errorf("ended %d, want %d", got, c.want)
			}
			if (atHead == Unanswered) != (c.want == Unanswered) {
				t.Errorf("at the head: %d", atHead)
			}
			if long := strings.Contains(c.name, "too long"); a.TooLong() != long {
				t.Errorf("too long: %v", a.TooLong())
			}
		})
	}
}

// broken is a body that cannot be read.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// A body that the proxy has closed is not one that the client has broken off. A deadline of the request is not the
// client's doing either.
func TestEndingIsNotTheClients(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", broken{http.ErrBodyReadAfterClose})
	a := New(httptest.NewRecorder(), r, func(int, http.Header) io.Writer { return nil })
	_ = r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	if got := a.End(true, errors.New("bad gateway")); got != Complete {
		t.Errorf("after a body that was closed: %d, want %d", got, Complete)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	a = New(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), func(int, http.Header) io.Writer { return nil })
	if got := a.End(true, caddyhttp.Error(504, ctx.Err())); got == Unanswered || got == Left {
		t.Errorf("after a deadline: %d", got)
	}
}
