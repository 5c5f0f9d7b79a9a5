package normalize

import (
	"net"
	"net/netip"
	"strings"
)

// Host returns the spelling of a host without a port: folded case, no brackets, no
// final dot. It is empty only if host is. Caddy's matchers strip each bracket by
// itself.
func Host(host string) string {
	if bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"); bare != "" {
		host = bare
	}
	if len(host) > 1 {
		host = strings.TrimSuffix(host, ".") // the root of all domains
	}
	return Fold(host)
}

// HostPort returns the spelling of a host that may have a port. The port is dropped:
// Caddy's matchers ignore it.
func HostPort(host string) string {
	if strings.IndexByte(host, ':') < 0 {
		return Host(host)
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return Host(host)
}

// Label returns a label of a host in the spelling of Host, from the right: 0 is the top
// level. It is empty if there is no such label.
func Label(host string, n int) string {
	for ; n > 0; n-- {
		i := strings.LastIndexByte(host, '.')
		if i < 0 {
			return ""
		}
		host = host[:i]
	}
	return host[strings.LastIndexByte(host, '.')+1:]
}

// Address returns the address that a value is, with or without a port: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1] or [2001:db8::1]:80. An IPv4 address that is
// written as one of IPv6 is returned as IPv4, and no address has an IPv6 zone.
func Address(value string) (netip.Addr, bool) {
	text := value
	if rest, ok := strings.CutPrefix(value, "["); ok {
		inner, port, ok := strings.Cut(rest, "]")
		if !ok || strings.IndexByte(inner, ':') < 0 || port != "" && !isPort(port) {
			return netip.Addr{}, false
		}
		text = inner
	} else if i := strings.IndexByte(value, ':'); i == strings.LastIndexByte(value, ':') { // none, or one
		if i >= 0 && !isPort(value[i:]) || value == "" || value[0] < '0' || value[0] > '9' {
			return netip.Addr{}, false // without an error, which would take memory
		}
		if i >= 0 {
			text = value[:i]
		}
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}

// isPort reports whether s is a colon and a port.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
