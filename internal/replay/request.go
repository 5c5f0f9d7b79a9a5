package replay

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
)

// unknownAddress is in the place of the address of a client that the log does not tell.
const unknownAddress = "0.0.0.0"

// newRequest returns the request of a line. It returns nil if no server could have got it.
func newRequest(l *accesslog.Line) *http.Request {
	r := &http.Request{
		Method: l.Method, RequestURI: l.URI, Host: l.Host, Proto: l.Proto,
		Header: make(http.Header, 8), Body: http.NoBody,
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	r.ProtoMajor, r.ProtoMinor = protocol(l.Proto)
	var err error
	if r.URL, err = readURI(l); err != nil {
		return nil
	}
	// A filter may have deleted the address of the connection.
	r.RemoteAddr = net.JoinHostPort(cmp.Or(l.RemoteIP, l.ClientIP, unknownAddress), cmp.Or(l.RemotePort, "0"))
	l.Headers(func(name string, values []string) bool {
		r.Header[textproto.CanonicalMIMEHeaderKey(name)] = values
		return true
	})
	if l.TLS {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: l.ServerName}
	}
	return r
}

// readURI reads the URI of a line as Go's server does.
func readURI(l *accesslog.Line) (*url.URL, error) {
	if l.Method == http.MethodConnect && !strings.HasPrefix(l.URI, "/") {
		u, err := url.ParseRequestURI("http://" + l.URI)
		if err == nil {
			u.Scheme = ""
		}
		return u, err
	}
	return url.ParseRequestURI(l.URI)
}

// protocol returns the version of HTTP.
func protocol(proto string) (major, minor int) {
	switch proto {
	case "HTTP/1.1", "":
		return 1, 1
	case "HTTP/2.0":
		return 2, 0
	case "HTTP/3.0":
		return 3, 0
	}
	major, minor, ok := http.ParseHTTPVersion(proto)
	if !ok {
		return 1, 1
	}
	return major, minor
}

// describe adds the details of the TLS connection that a line has, which few configurations ask for.
func describe(c *tls.ConnectionState, l *accesslog.Line) {
	text, _ := l.Member("request>tls")
	var logged struct {
		Resumed     bool   `json:"resumed"`
		Version     uint16 `json:"version"`
		CipherSuite uint16 `json:"cipher_suite"`
		Proto       string `json:"proto"`
	}
	if json.Unmarshal([]byte(text), &logged) == nil { // else a filter has changed it
		c.Version, c.CipherSuite, c.NegotiatedProtocol, c.DidResume = logged.Version, logged.CipherSuite, logged.Proto, logged.Resumed
	}
}

// copyFields copies the header of the answer.
func copyFields(to http.Header, l *accesslog.Line) {
	text, present := l.Member("resp_headers")
	if present != accesslog.Present {
		return
	}
	var fields map[string][]string
	if json.Unmarshal([]byte(text), &fields) == nil { // else a filter has changed it
		for name, values := range fields {
			to[textproto.CanonicalMIMEHeaderKey(name)] = values
		}
	}
}

// writer discards an answer.
type writer struct{ header http.Header }

func (w *writer) Header() http.Header         { return w.header }
func (w *writer) Write(p []byte) (int, error) { return len(p), nil }
func (w *writer) WriteHeader(int)             {}
