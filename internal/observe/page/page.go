// Package page serves a page that shows the rate limits of a running Caddy, to browsers on this machine.
// It does not import Caddy.
package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

//go:embed page.html
var document []byte

// TokenHeader is the field of requests that has the token.
const TokenHeader = "Sliding-Window-Token"

// maxBody is the longest body that is read, in bytes.
const maxBody = 64 << 10

// Ask asks the admin endpoint of Caddy. The question is sent as JSON, unless it is nil.
type Ask func(method, path string, question any) ([]byte, error)

// Page serves the page, and what the page asks for. Whoever has the token may ask.
type Page struct {
	token     string
	address   string // of the admin endpoint, to show
	ask       Ask
	metrics   *source
	status    *source
	overrides *source
	bans      *source
	troubles  troubles
	tops      chan struct{} // how many may ask for top talkers at a time
	csp       string
}

// New returns a page for the admin endpoint at an address, with a token of its own.
func New(address string, ask Ask) *Page {
	p := &Page{token: rand.Text(), address: address, ask: ask, tops: make(chan struct{}, 4), csp: policy(document)}
	p.metrics = newSource(metricsEvery, func() ([]byte, error) { return ask(http.MethodGet, "/metrics", nil) })
	p.status = newSource(statusEvery, func() ([]byte, error) { return ask(http.MethodGet, "/sliding_window/status?zones&recent", nil) })
	p.overrides = newSource(statusEvery, func() ([]byte, error) { return ask(http.MethodPost, "/sliding_window/overrides/list", struct{}{}) })
	p.bans = newSource(statusEvery, func() ([]byte, error) { return ask(http.MethodGet, "/sliding_window/bans?newest=20", nil) })
	return p
}

// Token returns what the fragment of the page's URL has to be.
func (p *Page) Token() string { return p.token }

// policy returns the Content-Security-Policy that allows the script and the style in the document, and
// requests to where it comes from.
func policy(document []byte) string {
	hashOf := func(element string) string {
		inside := regexp.MustCompile(`(?s)<` + element + `>(.*?)</` + element + `>`).FindSubmatch(document)
		sum := sha256.Sum256(inside[1])
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if !isLoopback(r.Host) {
		refuse(w, http.StatusForbidden, "Host: must be an address of this machine")
		return
	}
	if r.URL.Path == "/" {
		p.serveDocument(w, r)
		return
	}
	if problem := p.refuses(r); problem != "" {
		refuse(w, http.StatusForbidden, problem)
		return
	}
	switch {
	case r.URL.Path == "/live" && r.Method == http.MethodGet:
		p.serveLive(w, r)
	case r.URL.Path == "/overrides" && r.Method == http.MethodGet:
		serveSource(w, r, p.overrides)
	case r.URL.Path == "/bans" && r.Method == http.MethodGet:
		serveSource(w, r, p.bans)
	case r.URL.Path == "/top" && r.Method == http.MethodPost:
		p.serveTop(w, r)
	default:
		refuse(w, http.StatusNotFound, "no such path or method")
	}
}

func (p *Page) serveDocument(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "method not allowed; use GET")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", p.csp)
	w.Header().Set("Content-Length", strconv.Itoa(len(document)))
	_, _ = w.Write(document) // the browser may be gone
}

// refuses returns why a request is not one of the page; empty if it is.
func (p *Page) refuses(r *http.Request) string {
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case origin != "" && origin != "http://"+r.Host:
		return "Origin: must be this page"
	case site != "" && site != "same-origin":
		return "Sec-Fetch-Site: must be same-origin"
	case subtle.ConstantTimeCompare([]byte(r.Header.Get(TokenHeader)), []byte(p.token)) != 1:
		return "The token is not the one of this page. Open the whole address that the command has printed."
	}
	return ""
}

// isLoopback reports whether a host, with a port or without, is this machine by every resolver: a name
// that another server resolves could be any page of the web.
func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// Listen listens at an address, which must be one of the loopback interface.
func Listen(address string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil || !isLoopback(address) {
		return nil, errors.New("must be an address of the loopback interface, such as 127.0.0.1:8080")
	}
	return net.Listen("tcp", address)
}

// serveSource answers with the overrides or the bans of all stores. The page asks when the status counts some.
func serveSource(w http.ResponseWriter, r *http.Request, s *source) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	text, _, err := s.get(ctx)
	if err != nil {
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, json.RawMessage(text))
}

// serveTop passes a question about top talkers on.
func (p *Page) serveTop(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type: must be application/json")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil || !json.Valid(body) {
		refuse(w, http.StatusBadRequest, "body: not valid JSON")
		return
	}
	select {
	case p.tops <- struct{}{}:
	default:
		refuse(w, http.StatusServiceUnavailable, errSilent.Error())
		return
	}
	answer := make(chan result, 1)
	go func() {
		defer func() { <-p.tops }()
		text, err := p.ask(http.MethodPost, "/sliding_window/top", json.RawMessage(body))
		answer <- result{text, err}
	}()
	found, err := wait(r.Context(), answer)
	if err != nil {
		refuse(w, http.StatusBadGateway, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, json.RawMessage(found))
}

func refuse(w http.ResponseWriter, status int, problem string) {
	writeJSON(w, status, map[string]string{"error": problem})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the browser may be gone
}
