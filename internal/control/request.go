package control

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// ExampleRequest is an example of a request, to inspect what counts it.
type ExampleRequest struct {
	// Default: GET.
	Method string `json:"method,omitempty"`
	// The URL as a client has it, with scheme and host.
	URI string `json:"uri"`
	// Fields of the header: a string each, or a list of strings.
	Headers Fields `json:"headers,omitempty"`
	// The address that the connection comes from: an IP address, with a port or without, or @ for
	// a unix socket.
	Remote string `json:"remote"`
	// The name of the server in Caddy's JSON. Required if several listen on the port of the URI.
	Server string `json:"server,omitempty"`
}

// Fields are fields of a header.
type Fields map[string][]string

var errFields = errors.New("request.headers: must be an object whose values are strings or lists of strings")

// UnmarshalJSON implements json.Unmarshaler.
func (f *Fields) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if json.Unmarshal(b, &raw) != nil {
		return errFields
	}
	*f = make(Fields, len(raw))
	for name, value := range raw {
		var one string
		var list []string
		switch {
		case json.Unmarshal(value, &one) == nil:
			list = []string{one}
		case json.Unmarshal(value, &list) != nil:
			return errFields
		}
		(*f)[name] = list
	}
	return nil
}

// HTTP returns the request as a server of HTTP/1.1 gets it: with a path for a URL, and with TLS if
// the URI has the scheme https. Its errors do not quote the request.
func (r *ExampleRequest) HTTP(ctx context.Context) (*http.Request, error) {
	scheme, rest, _ := strings.Cut(r.URI, "://")
	scheme = strings.ToLower(scheme)
	end := strings.IndexAny(rest+"/", "/?#")
	host, target := rest[:end], rest[end:]
	target, _, _ = strings.Cut(target, "#")
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	u, err := url.ParseRequestURI(target)
	origin, hostErr := url.Parse("http://" + host)
	switch {
	case scheme != "http" && scheme != "https" || host == "" || hostErr != nil || origin.User != nil || origin.Hostname() == "":
		return nil, errors.New("request.uri: must begin with http:// or https:// and a host")
	case err != nil || strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return nil, errors.New("request.uri: the path or the query is not valid")
	}
	remote, err := remoteAddress(r.Remote)
	if err != nil {
		return nil, err
	}
	method := cmp.Or(r.Method, http.MethodGet)
	if !isToken(method) || len(method) > 32 {
		return nil, errors.New("request.method: not a method of HTTP")
	}
	req := &http.Request{
		Method: method, URL: u, RequestURI: target, Host: host, Header: make(http.Header), Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: remote,
	}
	if err := r.setHeader(req); err != nil {
		return nil, err
	}
	if scheme == "https" {
		req.TLS = &tls.ConnectionState{HandshakeComplete: true, ServerName: origin.Hostname()}
	}
	return req.WithContext(ctx), nil
}

// setHeader adds the fields to the header of req.
func (r *ExampleRequest) setHeader(req *http.Request) error {
	for name, values := range r.Headers {
		if !isToken(name) {
			return errors.New("request.headers: a name is not one of HTTP")
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n\x00") {
				return errors.New("request.headers: a value has a line break or a zero byte")
			}
			if strings.EqualFold(name, "Host") {
				req.Host = value
				continue
			}
			req.Header.Add(name, strings.Trim(value, " \t"))
		}
	}
	return nil
}

// Port returns the port that the URI names; empty if it names none.
func (r *ExampleRequest) Port() string {
	u, err := url.Parse(r.URI)
	if err != nil {
		return ""
	}
	return u.Port()
}

// remoteAddress returns an address as http.Request has it. The port 0 is of an address without one.
func remoteAddress(text string) (string, error) {
	if text == "@" {
		return text, nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return net.JoinHostPort(addr.String(), "0"), nil
	}
	if both, err := netip.ParseAddrPort(text); err == nil {
		return both.String(), nil
	}
	if text == "" {
		return "", errors.New("request.remote: required; send the address that the connection comes from")
	}
	return "", errors.New("request.remote: not an IP address, with a port or without")
}

// isToken reports whether HTTP allows a text as a method or as the name of a field.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// RequestInspection is the answer to POST /sliding_window/inspect with a request: which zones count
// it, and what they would decide.
type RequestInspection struct {
	// The server that gets the request, by its name in Caddy's JSON.
	Server string `json:"server"`
	// In the order in which the request meets them. A denied request meets no more.
	Zones []EvaluatedZone `json:"zones"`
	// Null if no known zone denies the request, and there are zones that are not known.
	WouldPass *bool `json:"would_pass"`
	// Modules of handlers that were not run, in the order in which the request meets them. They
	// were taken to let the request pass, and not to change it.
	NotRun []string `json:"not_run,omitempty"`
	// Placeholders without a value here that decide which routes the request takes.
	Unknown []string `json:"unknown,omitempty"`
}

// EvaluatedZone is a zone that a request meets.
type EvaluatedZone struct {
	Zone string `json:"zone"`
	// Placeholders without a value here that the zone needs. The rest is missing then.
	Unknown []string `json:"unknown,omitempty"`
	// `deny` if the zone denies the request for want of a key. The rest is missing then.
	EmptyKey string `json:"empty_key,omitempty"`
	// True if the zone does not deny this request, as `enforce` is not on for its key: whatever the
	// zone would decide, the request goes on.
	Shadow bool `json:"shadow,omitempty"`
	*Inspection
}
