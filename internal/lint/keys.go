package lint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
)

// mistakes returns a check for mistakes that were found when the zone was provisioned.
func mistakes(pick func(z *zone, m placeholders.Mistake) (p problem, found bool)) func(*Config, *zone) []problem {
	return func(_ *Config, z *zone) (all []problem) {
		for _, m := range z.Mistakes {
			if p, found := pick(z, m); found {
				p.option = cmp.Or(m.Option, "key")
				all = append(all, p)
			}
		}
		return all
	}
}

func early(_ *zone, m placeholders.Mistake) (problem, bool) {
	return problem{what: m.Option + " " + short(m.Placeholder) + " has no value yet"}, m.Kind == placeholders.Early
}

func unknown(_ *zone, m placeholders.Mistake) (problem, bool) {
	return problem{
		what: m.Option + " " + short(m.Placeholder) + " has no value unless a plugin defines it",
		cure: "write " + short(m.Meant) + ", or define the placeholder",
	}, m.Kind == placeholders.Unknown
}

func constant(z *zone, m placeholders.Mistake) (p problem, found bool) {
	p.what = fmt.Sprintf("key %s holds no placeholder", z.KeyText)
	if m.Meant != "" {
		p.cure = "write key " + short(m.Meant)
	}
	return p, m.Kind == placeholders.ConstantKey
}

func claimed(z *zone, m placeholders.Mistake) (problem, bool) {
	return problem{what: "key " + short(m.Placeholder) + " is what the client sends"},
		m.Kind == placeholders.ClaimedByAny && !z.flow.sets(m.Placeholder)
}

func short(name string) string { return template.Short("{" + name + "}") }

// sets reports whether a handler before has written the field of a header that a placeholder names.
func (f *flow) sets(name string) bool {
	field, ok := strings.CutPrefix(strings.ToLower(name), "http.request.header.")
	return ok && f.set[field]
}

// chosenNames are placeholders whose values clients choose, in lower case. A name that ends in a dot means all that begin
// with it.
var chosenNames = []string{
	"http.request.header.", "http.request.cookie.", "http.request.uri", "http.request.uri.", "http.request.orig_uri", "http.request.orig_uri.",
	"http.request.method", "http.request.orig_method", "http.request.host", "http.request.hostport", "http.request.host.labels.", "http.request.remote.port",
}

// isChosen reports whether a client can choose the value of a placeholder, of requests on a flow.
func isChosen(f *flow, name string) bool {
	low := strings.ToLower(name)
	if !slices.ContainsFunc(chosenNames, func(n string) bool {
		return n == low || strings.HasSuffix(n, ".") && strings.HasPrefix(low, n)
	}) {
		return false
	}
	switch {
	case f.pinned[low] || f.sets(name):
		return false
	case strings.HasPrefix(low, "http.request.host"):
		return f.hosts == nil || strings.ContainsAny(strings.Join(f.hosts, ""), "*{")
	case low == "http.request.method":
		return f.methods == nil
	case low == "http.request.uri.path" || strings.HasPrefix(low, "http.request.uri.path."):
		return slices.ContainsFunc(f.paths, func(p pattern) bool { return p.prefix })
	}
	return true
}

// within returns the requests on the flow of a zone that its own matchers match.
func (z *zone) within() *flow {
	f := z.flow.clone()
	f.constrain(z.Matchers)
	return f
}

// isKeyChosen reports whether all that tells clients apart in the key of a zone is their choice.
func (z *zone) isKeyChosen() bool {
	names, f := template.Names(z.KeyText), z.within()
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return !isChosen(f, name) })
}

func chosenKey(c *Config, z *zone) []problem {
	other := slices.ContainsFunc(template.Names(z.KeyText), func(name string) bool { return template.TrustedFor(name) != "" || isCredential(name) })
	if z.flow.checked || other || !z.isKeyChosen() || slices.ContainsFunc(c.zones, z.isBoundedBy) {
		return nil
	}
	return []problem{{what: "key " + template.Short(z.KeyText) + " is the client's choice, and no other zone counts these requests", option: "key"}}
}

// isCredential reports whether a placeholder is a field that the back end checks: a client that changes it is refused there.
func isCredential(name string) bool {
	field, ok := strings.CutPrefix(strings.ToLower(name), "http.request.header.")
	return ok && (strings.HasSuffix(field, "authorization") || strings.HasSuffix(field, "key") || strings.HasSuffix(field, "token"))
}

// isBoundedBy reports whether another zone counts the requests of z, by a key that clients do not choose.
func (z *zone) isBoundedBy(o *zone) bool {
	return o.server == z.server && o.Name != z.Name && o.Percent == enforce.All && o.flow.over == "" && meet(o.flow.hosts, z.flow.hosts) &&
		(o.MatcherText == "" || o.MatcherText == z.MatcherText) && !o.isKeyChosen()
}

func meet(a, b []string) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return hostsMeet(x, y) })
	})
}

func chosenNumber(_ *Config, z *zone) (all []problem) {
	f := z.within()
	for _, use := range z.Placeholders {
		if (use.Option == "limit" || use.Option == "concurrent" || use.Option == "cost") && !f.checked && isChosen(f, use.Name) {
			all = append(all, problem{what: use.Option + " " + short(use.Name) + " is the client's choice", option: use.Option})
		}
	}
	return all
}

// isConnection reports whether a placeholder has the address of the connection.
func isConnection(name string) bool {
	return name == "http.request.remote" || name == "http.request.remote.host"
}

func proxyAddress(_ *Config, z *zone) (all []problem) {
	trusts := z.server != nil && z.server.TrustedProxies != nil
	for _, name := range template.Names(z.KeyText) {
		switch {
		case trusts && isConnection(name):
			all = append(all, problem{
				what: "key " + short(name) + " is the address of the proxy, for all that come by one of trusted_proxies", option: "key",
				cure: "write key {client_ip}",
			})
		case isClientIP(name) && !trusts && z.server != nil && len(z.server.ClientIPHeaders) > 0:
			all = append(all, problem{
				what:   "client_ip_headers does nothing without trusted_proxies, so that key {client_ip} is the address of the connection",
				global: "servers.client_ip_headers", cure: "name the proxies in trusted_proxies",
			})
		}
	}
	if trusts && matchesConnection(z.Matchers) {
		all = append(all, problem{
			what: "match remote_ip sees the address of the proxy, for all that come by one of trusted_proxies", option: "match.remote_ip",
			cure: "write client_ip in the place of remote_ip",
		})
	}
	return all
}

func isClientIP(name string) bool { return name == "http.vars.client_ip" || name == "client_ip" }

// matchesConnection reports whether a matcher looks at the address of the connection.
func matchesConnection(sets caddyhttp.MatcherSets) bool {
	for _, set := range sets {
		for _, matcher := range set {
			switch m := matcher.(type) {
			case *caddyhttp.MatchRemoteIP:
				return true
			case *caddyhttp.MatchNot:
				for _, not := range m.MatcherSets {
					if matchesConnection(caddyhttp.MatcherSets{not}) {
						return true
					}
				}
			}
		}
	}
	return false
}

// usesClientIP reports whether the key of a zone has the address of the client.
func (z *zone) usesClientIP() bool { return slices.ContainsFunc(template.Names(z.KeyText), isClientIP) }

func trustsAll(_ *Config, z *zone) []problem {
	if z.server == nil || z.server.TrustedProxies == nil || !z.usesClientIP() {
		return nil
	}
	for _, text := range z.server.TrustedProxies.Ranges {
		if p, err := netip.ParsePrefix(text); err == nil && p.Bits() == 0 {
			return []problem{{what: "trusted_proxies " + text + " is every address, so that each client chooses its {client_ip}", global: "servers.trusted_proxies"}}
		}
	}
	return nil
}

func notStrict(c *Config, z *zone) []problem {
	if z.server == nil || z.server.TrustedProxies == nil || z.server.Strict > 0 || !z.usesClientIP() || trustsAll(c, z) != nil {
		return nil
	}
	listed := func(field string) bool { return strings.EqualFold(field, "X-Forwarded-For") }
	if fields := z.server.ClientIPHeaders; len(fields) > 0 && !slices.ContainsFunc(fields, listed) {
		return nil
	}
	return []problem{{what: "{client_ip} is the first address of X-Forwarded-For, which a client may write", global: "servers.trusted_proxies"}}
}

// sharedBan finds bans of addresses for what any client does.
func sharedBan(_ *Config, z *zone) []problem {
	if z.Ban == nil || z.CountIf != nil || !z.Key.IsAddress() {
		return nil
	}
	return []problem{{what: "an address is banned for requests that anybody makes", option: "ban"}}
}
