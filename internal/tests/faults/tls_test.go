package faults_test

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestTLSFaults has stores that mix up plain connections and TLS, and one whose server
// shows a certificate that has expired. The log says what is wrong, no request waits for
// longer than the timeout, and a new certificate is enough.
func TestTLSFaults(t *testing.T) {
	cert := redistest.NewCertificate(t)
	cert.Expire(t)
	server := redistest.StartTLS(t, cert)
	tls := fmt.Sprintf("tls {\nca %s\n}", cert.CA())

	s := &sites{T: t, address: map[string]string{free: caddyrun.FreeAddress(t)}}
	var text strings.Builder
	faults := map[string]struct{ address, tls, cause string }{
		"plain":   {server.TLSAddr, "", "does it want TLS"},
		"mixed":   {server.Addr, tls, "no answer within 100ms|does not look like a TLS handshake|does it want TLS"},
		"expired": {server.TLSAddr, tls, "certificate has expired"},
	}
	for name, fault := range faults {
		s.address[name] = caddyrun.FreeAddress(t)
		fmt.Fprintf(&text, `http://%[1]s {
	handle / {
		sliding_window {
			zone %[2]s {
				key {header.X-Key}
				limit %[3]d 1h
			}
			store redis {
				address %[4]s
				prefix %[2]s
				timeout %[5]s
				%[6]s
			}
			on_error deny
		}
		respond ok
	}
}
`, s.address[name], name, limit, fault.address, timeout, fault.tls)
	}
	s.caddy = caddyrun.Start(t, fmt.Sprintf("{\n\tadmin {admin}\n\tpersist_config off\n\tauto_https off\n}\n%shttp://%s {\n\trespond ok\n}\n", text.String(), s.address[free]), slices.Collect(maps.Values(s.address))...)
	s.client = caddyrun.NewClient(t)

	during := s.visit("tls", time.Second)
	for name, fault := range faults {
		if n := statuses(during[name]); n[http.StatusServiceUnavailable] != len(during[name]) {
			t.Errorf("%s: statuses %v, want 503", name, n)
		}
		s.checkSlowest(name, during)
		lines := s.loggedOf(name)
		if len(lines) != 1 || !regexp.MustCompile(fault.cause+during.orLate()).MatchString(lines[0]) {
			t.Errorf("%s: the log has %q, want one line with %q", name, lines, fault.cause)
		}
	}

	cert.Renew(t)
	cert.Reload(t, server)
	caddyrun.Eventually(t, back, "a new certificate is enough", func() bool { return s.get("expired", "probe").Status == http.StatusOK })
	if lines := s.loggedOf("expired"); len(lines) != 2 {
		t.Errorf("the log has %q, want that the store was away, and that it is back", lines)
	}
}

// loggedOf returns the lines about the store with a prefix.
func (s *sites) loggedOf(prefix string) []string {
	var lines []string
	for _, line := range s.logged() {
		if strings.Contains(line, `/0 `+prefix+`"`) {
			lines = append(lines, line)
		}
	}
	return lines
}
