package settling_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// secureSite is a Caddy in a process of its own that speaks HTTP/1.1, 2 and 3 to clients, with a zone that
// settles and one with count_if in front of a back end.
type secureSite struct {
	testing.TB
	address string // of 127.0.0.1
	host    string // the name and port in URLs

	caddy     *caddyrun.Process
	caddyfile string
}

// serveSecurely starts a site with settle and count_if as they stand in a zone.
func serveSecurely(t testing.TB, settle, countIf, backEnd string) *secureSite {
	t.Helper()
	return serveDirectives(t, "memory", fmt.Sprintf(`sliding_window {
		zone tokens {
			key {header.X-Key}
			limit 1000 1h
			cost {header.X-Cost}
			%s
		}
		zone failures {
			key {header.X-Key}
			limit 10 1h
			count_if %s
		}
	}
	respond /look 204
	reverse_proxy %s`, settle, countIf, backEnd))
}

// serveDirectives starts a site with directives and a store.
func serveDirectives(t testing.TB, store, directives string) *secureSite {
	t.Helper()
	address, plain := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	s := &secureSite{TB: t, address: address, host: "localhost:" + port}
	s.caddyfile = fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https disable_redirects
	local_certs
	skip_install_trust
	storage_clean_interval off
	sliding_window {
		store %s
	}
}
http://%s {
	respond ok
}
https://%s {
	bind 127.0.0.1
	%s
}
`, store, plain, s.host, directives)
	s.caddy = caddyrun.Start(t, s.caddyfile, plain)
	caddyrun.Eventually(t, 20*time.Second, "Caddy has a certificate", func() bool {
		conn, err := tls.Dial("tcp", address, s.tls("http/1.1"))
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
	return s
}

// reload loads another configuration, with the same site.
func (s *secureSite) reload() {
	s.Helper()
	text := strings.NewReplacer("{admin}", s.caddy.Admin, "respond ok", "respond again").Replace(s.caddyfile)
	if status, body := s.caddy.Tell(s, http.MethodPost, "/load", "text/caddyfile", text); status != http.StatusOK {
		s.Fatalf("reload: status %d: %s", status, body)
	}
}

// tls returns how clients connect that speak a protocol.
func (s *secureSite) tls(protocols ...string) *tls.Config {
	return &tls.Config{ServerName: "localhost", NextProtos: protocols, InsecureSkipVerify: true}
}

// overHTTP1, overHTTP2 and overHTTP3 return what carries requests of one client.
func (s *secureSite) overHTTP1() http.RoundTripper {
	transport := &http.Transport{TLSClientConfig: s.tls("http/1.1")}
	s.Cleanup(transport.CloseIdleConnections)
	return transport
}

func (s *secureSite) overHTTP2() http.RoundTripper {
	transport := &http2.Transport{TLSClientConfig: s.tls("h2")} //nolint:staticcheck // net/http sends no :protocol
	s.Cleanup(transport.CloseIdleConnections)                   //nolint:staticcheck // as above
	return transport
}

func (s *secureSite) overHTTP3() http.RoundTripper {
	transport := &http3.Transport{TLSClientConfig: s.tls("h3")}
	s.Cleanup(func() { _ = transport.Close() })
	return transport
}

// request returns a request of a key that reserves 100 units.
func (s *secureSite) request(ctx context.Context, method, path, key string) *http.Request {
	s.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.host+path, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("X-Key", key)
	req.Header.Set("X-Cost", "100")
	return req
}

// left returns how many units are left to a key in both zones. Its own request costs nothing in the end, but
// one unit of failures until it is answered, which is what the header tells.
func (s *secureSite) left(client http.RoundTripper, key string) (tokens, failures int) {
	s.Helper()
	all := s.lefts(client, key)
	tokens, hasTokens := all["tokens"]
	failures, hasFailures := all["failures"]
	if !hasTokens || !hasFailures {
		s.Fatalf("units are left in the zones %v, want tokens and failures", all)
	}
	return tokens, failures + 1
}

// wantLeft waits until these units are left in both zones.
func (s *secureSite) wantLeft(client http.RoundTripper, key string, tokens, failures int) {
	s.Helper()
	var haveTokens, haveFailures int
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if haveTokens, haveFailures = s.left(client, key); haveTokens == tokens && haveFailures == failures {
			return
		}
	}
	s.Errorf("%s: %d and %d units are left, want %d and %d", key, haveTokens, haveFailures, tokens, failures)
}
