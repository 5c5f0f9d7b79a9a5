package caddyrun

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NewClient returns a client with connections of its own.
func NewClient(tb testing.TB) *http.Client {
	transport := &reloads{http.Transport{MaxIdleConnsPerHost: 64}}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// reloads is a transport for a Caddy that is reloaded. Caddy.Load returns when the old
// listeners are about to close. A connection that an old listener has not accepted by then
// is reset: no handler sees its request, which is sent again. [http.Transport] does so
// itself where the connection has been used before.
type reloads struct{ http.Transport }

// RoundTrip implements [http.RoundTripper].
func (r *reloads) RoundTrip(req *http.Request) (*http.Response, error) {
	wasUsed := false
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { wasUsed = c.Reused }}
	resp, err := r.Transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	wasReset := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	if !wasReset || wasUsed || (req.Body != nil && req.GetBody == nil) {
		return resp, err
	}
	again := req.Clone(req.Context())
	if req.GetBody != nil {
		if again.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	return r.Transport.RoundTrip(again)
}

// Answer is what a test wants to know of a response.
type Answer struct {
	Status       int
	Header       http.Header
	Body         string
	Sent, Gotten time.Time
}

// Get asks for / with a value for the header X-Key.
func Get(client *http.Client, address, key string) (Answer, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("X-Key", key)
	a := Answer{Sent: time.Now()}
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	a.Gotten, a.Status, a.Header, a.Body = time.Now(), resp.StatusCode, resp.Header, string(body)
	return a, err
}

// MustGet is Get for a test that cannot go on without an answer.
func MustGet(tb testing.TB, client *http.Client, address, key string) Answer {
	tb.Helper()
	a, err := Get(client, address, key)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// Fetch returns the body at a URL.
func Fetch(tb testing.TB, client *http.Client, url string) string {
	tb.Helper()
	resp, err := client.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return string(body)
}

// Tell sends something to the admin API, and returns the status and the body of the
// answer. With each change Caddy closes the connections that the API had, and those
// that come at that moment: it is told again then.
func (p *Process) Tell(tb testing.TB, method, path, contentType, text string) (status int, body string) {
	tb.Helper()
	Eventually(tb, 20*time.Second, "the admin API answers", func() bool {
		req, err := http.NewRequest(method, "http://"+p.Admin+path, strings.NewReader(text))
		if err != nil {
			tb.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		status, body = resp.StatusCode, string(answer)
		return err == nil
	})
	if path == "/load" {
		AfterReload()
	}
	return status, body
}

// AfterReload waits until the servers of the former configuration take no request any more. They end a
// moment after Caddy says that the new one runs, with connections that came to them and of which they
// have served no request yet.
func AfterReload() { time.Sleep(500 * time.Millisecond) }
