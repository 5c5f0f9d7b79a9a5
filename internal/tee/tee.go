// Package tee passes answers on, and lets others see them.
package tee

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Writer passes an answer on, and lets others see it. It buffers nothing: what is written
// and flushed reaches the client first and is then shown. Only requests that need it have
// one.
type Writer struct {
	*caddyhttp.ResponseWriterWrapper // Push, Unwrap: deadlines, full duplex

	// begin is called once, before the final status line is sent. 101 is final, other
	// statuses below 200 are not. header is what the handlers inside have set: a
	// Content-Encoding is theirs, and that of an encode outside is not there yet. The
	// result gets a copy of the body; it is nil if none is wanted. It must not retain
	// what it gets, and its result is ignored.
	begin func(status int, header http.Header) (body io.Writer)

	Status   int       // 0: not known yet
	body     io.Writer // nil: the body is not read
	Tunnel   bool      // a CONNECT, which is a tunnel if its status is 2xx
	Hijacked bool      // the handlers have taken the connection over
	Closed   func()    // called once when a hijacked connection is closed; nil: it is not watched
	Request  *http.Request
	so       progress
}

// New returns an answer to r that passes to w. It watches the body of r, which it replaces.
func New(w http.ResponseWriter, r *http.Request, begin func(int, http.Header) io.Writer) *Writer {
	a := &Writer{
		ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		begin:                 begin, Tunnel: r.Method == http.MethodConnect, Request: r,
	}
	if r.Body != nil && r.Body != http.NoBody {
		a.so.request = &requestBody{ReadCloser: r.Body}
		r.Body = a.so.request
	}
	return a
}

// Decided notes the final status, unless it is known already. After an upgrade, what
// passes is not an answer.
func (a *Writer) Decided(status int) {
	if a.Status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	a.Status = status
	a.began()
	body := a.begin(status, a.Header())
	if status != http.StatusSwitchingProtocols && !(a.Tunnel && status < 300) {
		a.body = body
	}
}

// StatusOf returns the status of an answer that an error makes.
func StatusOf(err error) int {
	var of caddyhttp.HandlerError
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &of) && of.StatusCode != 0:
		return of.StatusCode
	}
	return http.StatusInternalServerError
}

// WriteHeader implements http.ResponseWriter.
func (a *Writer) WriteHeader(status int) {
	a.Decided(status)
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *Writer) Write(p []byte) (int, error) {
	a.Decided(http.StatusOK)
	n, err := a.ResponseWriter.Write(p)
	a.so.wrote(int64(n), err)
	if a.body != nil && n > 0 {
		_, _ = a.body.Write(p[:n])
	}
	return n, err
}

// copies are buffers of ReadFrom.
var copies = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom implements io.ReaderFrom. Without a copy of the body, the kernel may send a
// file by itself.
func (a *Writer) ReadFrom(r io.Reader) (int64, error) {
	a.Decided(http.StatusOK)
	if a.body == nil {
		n, err := a.ResponseWriterWrapper.ReadFrom(r)
		a.so.wrote(n, err)
		return n, err
	}
	buffer := copies.Get().(*[32 << 10]byte)
	defer copies.Put(buffer)
	n, err := io.CopyBuffer(struct{ io.Writer }{a}, struct{ io.Reader }{r}, buffer[:])
	a.so.wrote(0, err)
	return n, err
}

// FlushError implements what http.ResponseController looks for. A flush sends the status
// line.
func (a *Writer) FlushError() error {
	a.Decided(http.StatusOK)
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (a *Writer) Flush() {
	_ = a.FlushError() // a Flusher has no errors
}

// Hijack implements http.Hijacker. The connection is not seen, but for its end.
func (a *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.Decided(http.StatusSwitchingProtocols)
		a.body, a.Hijacked = nil, true
		if a.Closed != nil {
			watched := &watchedConn{Conn: conn, closed: sync.OnceFunc(a.Closed)}
			runtime.AddCleanup(watched, func(closed func()) { closed() }, watched.closed) // of handlers that forget it, as in a panic
			conn = watched
		}
	}
	return conn, rw, err
}

// watchedConn is a connection whose end is seen.
type watchedConn struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// CloseWrite closes one direction, as TCP and TLS connections can.
func (c *watchedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom implements io.ReaderFrom: the kernel may copy by itself.
func (c *watchedConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// WriteTo implements io.WriterTo.
func (c *watchedConn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Conn) }

// Interface guards.
var (
	_ http.Flusher  = (*Writer)(nil)
	_ http.Hijacker = (*Writer)(nil)
	_ http.Pusher   = (*Writer)(nil)
	_ io.ReaderFrom = (*Writer)(nil)
)
