package adminapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/caddyapi"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// exportBans returns the addresses that a zone has banned, as another program reads them. While the store is away, they are
// those that this Caddy knows.
func exportBans(ctx context.Context, q *control.BanQuery) (plainText, error) {
	if q.Zone == "" {
		return "", refused(http.StatusBadRequest, fmt.Errorf("zone: required with format %s, which is of one zone", q.Format))
	}
	zones, err := findZone(q.Zone, q.Store)
	if err != nil {
		return "", err
	}
	z := zones[0]
	if err := isExportable(z, q.Format); err != nil {
		return "", refused(http.StatusConflict, err)
	}
	_ = z.Store.Bans.Look(ctx) // the known ones hold to their end
	var v4, v6 []denied
	for _, d := range outermost(z, z.Store.Bans.List()) {
		if d.Addr().Is4() {
			v4 = append(v4, d)
		} else {
			v6 = append(v6, d)
		}
	}
	var b strings.Builder
	switch q.Format {
	case "nft":
		b.WriteString("add table inet sliding_window\n")
		writeNft(&b, "sw4_"+q.Zone, "ipv4_addr", v4)
		writeNft(&b, "sw6_"+q.Zone, "ipv6_addr", v6)
	case "ipset":
		writeIpset(&b, "sw4_"+q.Zone, "inet", v4)
		writeIpset(&b, "sw6_"+q.Zone, "inet6", v6)
	default:
		for _, d := range append(v4, v6...) {
			fmt.Fprintln(&b, d)
		}
	}
	return plainText(b.String()), nil
}

// longestIpset is how long a name of ipset is, in bytes.
const longestIpset = 31

// isExportable returns why the bans of a zone cannot be handed to another program.
func isExportable(z *running.ActiveZone, format string) error {
	isRemote := slices.Contains([]string{"http.request.remote", "http.request.remote.host"}, z.Key.Single)
	switch {
	case z.Store.Overrides.Hasher() != nil:
		return errors.New("zone: its store has hash_keys, which keeps no address of a client; the zone denies them all the same")
	case !z.Key.IsAddress():
		return fmt.Errorf("zone: its key is %s, and no address that another program could deny", z.Configured.Key)
	case format == "text" || isRemote:
	case isBehindProxy():
		return errors.New("zone: its key is {client_ip}, and a server has trusted_proxies: the kernel sees the proxies in the place of their clients, and would drop no client, or a proxy with all of its clients; hand format text to the proxy, or write key {remote_host} in a zone that no proxy uses")
	}
	if name := "sw4_" + z.Name() + "_new"; format == "ipset" && len(name) > longestIpset {
		return fmt.Errorf("zone: %s would be longer than the %d bytes of a name of ipset; use format nft, or a shorter name", name, longestIpset)
	}
	return nil
}

// isBehindProxy reports whether a server that runs may take the address of a client from a header field.
func isBehindProxy() bool {
	app, err := caddy.ActiveContext().AppIfConfigured("http")
	if err != nil {
		return true
	}
	for _, server := range app.(*caddyhttp.App).Servers {
		if caddyapi.TrustsProxies(server) {
			return true
		}
	}
	return false
}

// denied is a network that is banned.
type denied struct {
	netip.Prefix
	seconds int64 // that are left
}

// String returns an address without its length.
func (d denied) String() string {
	if d.IsSingleIP() {
		return d.Addr().String()
	}
	return d.Prefix.String()
}

// outermost returns the networks that a zone denies now for a ban, without those that are in others: sets of the kernel
// refuse them. Keys of which the zone denies no request are left out.
func outermost(z *running.ActiveZone, entries []banbook.Entry) (all []denied) {
	percent := z.Decider.Enforced()
	for _, e := range entries {
		p, ok := addressesOf(&e)
		isEnforced := percent == enforce.All || e.Key != nil && enforce.IsEnforced(z.Name(), *e.Key, percent)
		if !ok || e.Shadow || e.Zone != z.Name() || !isEnforced {
			continue
		}
		if e.Key != nil {
			if _, rule, _ := z.Decider.Charge(*e.Key); rule != nil && rule.Exempt {
				continue
			}
		}
		all = append(all, denied{p, int64(math.Ceil(e.Left))})
	}
	slices.SortFunc(all, func(a, b denied) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		if c := a.Bits() - b.Bits(); c != 0 {
			return c
		}
		return int(b.seconds - a.seconds)
	})
	last := denied{}
	return slices.DeleteFunc(all, func(d denied) bool {
		if last.IsValid() && last.Contains(d.Addr()) {
			return true
		}
		last = d
		return false
	})
}

// writeNft writes a set as `nft -f` reads it, which changes it at once.
func writeNft(b *strings.Builder, name, kind string, all []denied) {
	fmt.Fprintf(b, "add set inet sliding_window %s { type %s; flags interval, timeout; }\nflush set inet sliding_window %[1]s\n", name, kind)
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "add element inet sliding_window %s {\n", name)
	for _, d := range all {
		fmt.Fprintf(b, "\t%s timeout %ds,\n", d, d.seconds)
	}
	b.WriteString("}\n")
}

// longestTimeout is that of ipset, in seconds.
const longestTimeout = 2147483

// writeIpset writes a set as `ipset -exist restore` reads it, which changes it at once.
func writeIpset(b *strings.Builder, name, family string, all []denied) {
	for _, each := range []string{name, name + "_new"} {
		fmt.Fprintf(b, "create %s hash:net family %s maxelem %d timeout 0\n", each, family, 2*bans.MostRecords)
	}
	fmt.Fprintf(b, "flush %s_new\n", name)
	for _, d := range all {
		fmt.Fprintf(b, "add %s_new %s timeout %d\n", name, d, min(d.seconds, longestTimeout))
	}
	fmt.Fprintf(b, "swap %s_new %[1]s\ndestroy %[1]s_new\n", name)
}
