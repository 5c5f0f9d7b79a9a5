package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// A tier that cannot be counted, or not as it reads, is refused at its line.
func TestRefusedTiers(t *testing.T) {
	limit := func(tier string) string {
		return `"limits":[{"max":5,"window":"1m"},{"max":50,"window":"1m","tier":"` + tier + `"}]`
	}
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4,
		`{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
			{"limit 5 1m\nlimit 50 1m tier 24", 1, limit("24"), `zone api: limit 50 1m tier 24: a tier is the leading bits of IPv4 and of IPv6 addresses; write tier 24/48, or others`},
			{"limit 5 1m\nlimit 50 1m tier /24/48", 1, limit("/24/48"), `zone api: limit 50 1m tier /24/48: a tier is the leading bits of IPv4 and of IPv6 addresses; write tier 24/48, or others`},
			{"limit 5 1m\nlimit 50 1m tier {header.X-Tier}", 1, limit("{header.X-Tier}"), `zone api: limit 50 1m tier {header.X-Tier}: a tier is the leading bits of IPv4 and of IPv6 addresses; write tier 24/48, or others`},
			{"limit 5 1m\nlimit 50 1m tier 33/48", 1, limit("33/48"), `zone api: limit 50 1m tier 33/48: the bits of a tier must be from 0 to 32 of IPv4, and from 0 to 128 of IPv6`},
			{"limit 5 1m\nlimit 50 1m tier 24/-1", 1, limit("24/-1"), `zone api: limit 50 1m tier 24/-1: the bits of a tier must be from 0 to 32 of IPv4, and from 0 to 128 of IPv6`},
			{"limit 5 1m\nlimit 50 1m tier", 1, ``, `zone api: limit 50 1m tier: a tier is one word behind the limit; write limit <max> <window> tier 24/48`},
			{"limit 5 1m\nlimit 50 1m tier 24 48", 1, ``, `zone api: limit 50 1m tier 24 48: a tier is one word behind the limit; write limit <max> <window> tier 24/48`},
			{"limit 5 1m\nlimit 50 1m 24/48", 1, ``, `zone api: wrong argument count or unexpected line ending after '1m'; write limit <max> <window>, such as limit 100 1m`},
			{"limit 50 1m tier 24/48", 0, `"limits":[{"max":50,"window":"1m","tier":"24/48"}]`, `zone api: limit 50 1m tier 24/48: the zone has no limit without a tier in front of this one; add one, or write ipv4_prefix and ipv6_prefix in place of tier`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nlimit 9 1h", 2, `"limits":[{"max":5,"window":"1m"},{"max":50,"window":"1m","tier":"24/48"},{"max":9,"window":"1h"}]`,
				`zone api: limit 9 1h: limits go from the address to wider networks; write this limit in front of those with a tier`},
			{"limit 5 1m\nlimit 50 1m tier 16/32\nlimit 9 1h tier 24/48", 2, `"limits":[{"max":5,"window":"1m"},{"max":50,"window":"1m","tier":"16/32"},{"max":9,"window":"1h","tier":"24/48"}]`,
				`zone api: limit 9 1h tier 24/48: limits go from the address to wider networks, and 24/48 is not wider than 16/32, of IPv4 and of IPv6; write fewer bits of both, or another order`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nlimit 90 1h tier 16/48", 2, `"limits":[{"max":5,"window":"1m"},{"max":50,"window":"1m","tier":"24/48"},{"max":90,"window":"1h","tier":"16/48"}]`,
				`zone api: limit 90 1h tier 16/48: limits go from the address to wider networks, and 16/48 is not wider than 24/48, of IPv4 and of IPv6; write fewer bits of both, or another order`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nlimit 90 60s tier 24/48", 2, `"limits":[{"max":5,"window":"1m"},{"max":50,"window":"1m","tier":"24/48"},{"max":90,"window":"60s","tier":"24/48"}]`,
				`zone api: limit 90 60s tier 24/48: another limit has the same window; keep the smaller one`},
			{"limit 5 1m\nlimit 50 1m tier 24/64", 1, limit("24/64"), `zone api: limit 50 1m tier 24/64: the zone groups addresses by 32/64 bits, and a tier has fewer, of IPv4 and of IPv6; write fewer, or set ipv4_prefix and ipv6_prefix`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nipv4_prefix 24", 1, limit("24/48") + `,"ipv4_prefix":24`, `zone api: limit 50 1m tier 24/48: the zone groups addresses by 24/64 bits, and a tier has fewer, of IPv4 and of IPv6; write fewer, or set ipv4_prefix and ipv6_prefix`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nkey {header.X-Key}", 1, limit("24/48") + `,"key":"{http.request.header.X-Key}"`, `zone api: limit 50 1m tier 24/48: key {header.X-Key} is not the address of a client alone; write key {client_ip}, or a zone of its own for the network`},
			{"key {client_ip}{path}\nlimit 5 1m\nlimit 50 1m tier 24/48", 2, limit("24/48") + `,"key":"{client_ip}{http.request.uri.path}"`, `zone api: limit 50 1m tier 24/48: key {client_ip}{path} is not the address of a client alone; write key {client_ip}, or a zone of its own for the network`},
			{"limit 5 1m\nlimit {header.X-Q} 1m tier 24/48\nfallback 5 1m", 1, `"limits":[{"max":5,"window":"1m"},{"max":"{http.request.header.X-Q}","window":"1m","tier":"24/48"}],"fallback":{"max":5,"window":"1m"}`,
				`zone api: limit {http.request.header.X-Q} 1m tier 24/48: a limit with a tier cannot hold a placeholder; write numbers`},
			{"limit 5 1m\nfallback 5 1m tier 24/48", 1, `"limits":[{"max":5,"window":"1m"}],"fallback":{"max":5,"window":"1m","tier":"24/48"}`, `zone api: fallback 5 1m tier 24/48: only a limit has a tier; take tier out`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nlease 2", 2, limit("24/48") + `,"lease":{"units":2}`, `zone api: lease and tier cannot be combined, for a request that counts in several places takes no lease; take out one of them`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nenforce 25%", 2, limit("24/48") + `,"enforce":"25%"`, `zone api: enforce 25% and tier cannot be combined, for a network would be counted in two halves; write on or shadow`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nalgorithm gcra {\nnative on\n}", 5, limit("24/48") + `,"algorithm":{"name":"gcra","native":"on"}`, `zone api: algorithm gcra: native on: there is more than one limit; use native auto`},
			{"limit 5 1m\nlimit 50 1m tier 24/48\nlimit 90 1h tier 24/48\npack 9\nalgorithm slices {\ncount 2\n}", 7, `"limits":[{"max":5,"window":"1m"},{"max":50,"window":"1m","tier":"24/48"},{"max":90,"window":"1h","tier":"24/48"}],"pack":9,"algorithm":{"name":"slices","count":2}`,
				`zone api: pack 9: 2 limits are too many, 1 is the most with slices; take out some, or pack`},
		})
}

// tierZones has a zone with tiers, and one in shadow.
const tierZones = `handle /shadow {
	sliding_window {
		zone shadow {
			limit 3 1h
			limit 5 1h tier 24/48
			enforce shadow
			top_talkers
		}
	}
	respond ok
}
handle {
	sliding_window {
		zone crawlers {
			limit 3 1h
			limit 5 1h tier 24/48
			limit 9 1h tier 16/32
			top_talkers
		}
	}
	respond ok
}`

// from sends a request from an address, which a proxy tells.
func (c *controlled) sendFrom(address, path string) *http.Response {
	c.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+c.site+path, nil)
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", address)
	resp, err := c.client.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

const trustsProxies = "servers {\ntrusted_proxies static 127.0.0.1/8\n}\n"

// Over HTTP and on a real Redis, tiers count addresses and networks. A denied request costs nothing in any of them. Operators see,
// reset and override each by its network.
func TestTiers(t *testing.T) {
	server := redistest.Start(t)
	for _, store := range []string{"memory", "redis redis://" + server.Addr, "redis {\naddress " + server.Addr + "\nprefix hashed\nhash_keys 0123456789abcdef0123456789abcdef\n}"} {
		t.Run(strings.Fields(store)[0], func(t *testing.T) {
			c := newControlled(t, trustsProxies+"sliding_window {\nstore "+store+"\n}\n", tierZones)
			before := c.zoneOutcomes("crawlers")
			want := func(address, remaining, policies string) {
				t.Helper()
				resp := c.sendFrom(address, "/")
				status := map[bool]int{true: http.StatusTooManyRequests, false: http.StatusOK}[strings.HasPrefix(remaining, "denied")]
				var left []string
				for _, part := range strings.Split(resp.Header.Get("RateLimit"), ", ") {
					left = append(left, part[:strings.Index(part, ";t=")])
				}
				if got := strings.Join(left, " "); resp.StatusCode != status || got != strings.TrimPrefix(remaining, "denied ") {
					t.Errorf("%s: got %d, %s, want %d, %s", address, resp.StatusCode, got, status, remaining)
				}
				if got := resp.Header.Get("RateLimit-Policy"); policies != "" && got != policies {
					t.Errorf("%s: got RateLimit-Policy %s, want %s", address, got, policies)
				}
			}
			want("192.0.2.1", `"crawlers";r=2 "crawlers:24/48";r=4 "crawlers:16/32";r=8`, `"crawlers";q=3;w=3600, "crawlers:24/48";q=5;w=3600, "crawlers:16/32";q=9;w=3600`)
			want("192.0.2.1", `"crawlers";r=1 "crawlers:24/48";r=3 "crawlers:16/32";r=7`, "")
			want("192.0.2.1", `"crawlers";r=0 "crawlers:24/48";r=2 "crawlers:16/32";r=6`, "")
			want("192.0.2.1", `denied "crawlers";r=0 "crawlers:24/48";r=2 "crawlers:16/32";r=6`, "")
			want("192.0.2.2", `"crawlers";r=2 "crawlers:24/48";r=1 "crawlers:16/32";r=5`, "")
			want("192.0.2.2", `"crawlers";r=1 "crawlers:24/48";r=0 "crawlers:16/32";r=4`, "")
			want("192.0.2.3", `denied "crawlers";r=3 "crawlers:24/48";r=0 "crawlers:16/32";r=4`, "")
			want("192.0.3.1", `"crawlers";r=2 "crawlers:24/48";r=4 "crawlers:16/32";r=3`, "")
			want("2001:db8::1", `"crawlers";r=2 "crawlers:24/48";r=4 "crawlers:16/32";r=8`, "")

			after := c.zoneOutcomes("crawlers")
			if allowed, denied := after["allowed"]-before["allowed"], after["denied"]-before["denied"]; allowed != 7 || denied != 2 {
				t.Errorf("counted %d as allowed and %d as denied, want 7 and 2: each request once", allowed, denied)
			}

			var i control.Inspection
			inspect := func(key string) {
				t.Helper()
				i = control.Inspection{}
				c.post("inspect", map[string]any{"zone": "crawlers", "key": key}, http.StatusOK, &i)
			}
			inspect("192.0.2.3")
			used := func() []string {
				all := []string{fmt.Sprintf("%s %s %d of %d", i.Tier, i.Key, i.Limits[0].Used, i.Limits[0].Max)}
				for _, t := range i.Tiers {
					all = append(all, fmt.Sprintf("%s %s %d of %d", t.Tier, t.Key, t.Limits[0].Used, t.Limits[0].Max))
				}
				return all
			}
			if got := strings.Join(used(), ", "); got != " 192.0.2.3 0 of 3, 24/48 192.0.2.0/24 5 of 5, 16/32 192.0.0.0/16 6 of 9" || i.Passes() {
				t.Errorf("inspected: %s, passes %v", got, i.Passes())
			}
			inspect("192.0.2.77/24")
			if got := strings.Join(used(), ", "); got != "24/48 192.0.2.0/24 5 of 5" || i.Passes() {
				t.Errorf("inspected by network: %s, passes %v", got, i.Passes())
			}

			var top control.Top
			hashed := strings.Contains(store, "hash")
			wantTop := func(tier, by string, total int64, key string) {
				t.Helper()
				top = control.Top{}
				c.post("top", map[string]any{"zone": "crawlers", "by": by, "tier": tier}, http.StatusOK, &top)
				if top.Total != total || top.Tier != tier || len(top.Keys) == 0 || !hashed && top.Keys[0].Key != key || top.Hashed != hashed {
					t.Errorf("top %s of tier %q: got %+v, want %d and %s first", by, tier, top, total, key)
				}
			}
			wantTop("", "denied", 1, "192.0.2.1")
			wantTop("24/48", "denied", 1, "192.0.2.0/24")
			wantTop("", "charged", 7, "192.0.2.1")
			wantTop("24/48", "charged", 7, "192.0.2.0/24")
			wantTop("16/32", "charged", 7, "192.0.0.0/16")
			if status, text := c.ask(http.MethodPost, "/sliding_window/top", "application/json", `{"zone":"crawlers","tier":"8/8"}`); status != http.StatusNotFound || !strings.Contains(text, "tier: the zone has no such tier") {
				t.Errorf("top of another tier: got %d %s", status, text)
			}

			// An override of a network holds for the tier, and one of an address for the limits without.
			set := func(record map[string]any, inPlaceOf string) {
				t.Helper()
				record["zone"] = "crawlers"
				var change control.OverrideChange
				c.post("overrides/set", record, http.StatusOK, &change)
				if got := change.InPlaceOf[change.Records[0].ID]; got != inPlaceOf {
					t.Errorf("override %v is in place of %s, want %s", record, got, inPlaceOf)
				}
			}
			set(map[string]any{"key": "192.0.2.0/24", "limits": []any{map[string]any{"max": 7, "window": "1h"}}}, "5 in 1h tier 24/48")
			want("192.0.2.3", `"crawlers";r=2 "crawlers:24/48";r=1 "crawlers:16/32";r=2`, `"crawlers";q=3;w=3600, "crawlers:24/48";q=7;w=3600, "crawlers:16/32";q=9;w=3600`)
			set(map[string]any{"key": "192.0.2.3", "limits": []any{map[string]any{"max": 100, "window": "1h"}}}, "3 in 1h")
			want("192.0.2.3", `"crawlers";r=98 "crawlers:24/48";r=0 "crawlers:16/32";r=1`, "")
			want("192.0.2.3", `denied "crawlers";r=98 "crawlers:24/48";r=0 "crawlers:16/32";r=1`, "")
			set(map[string]any{"key": "192.0.2.0/24", "exempt": true}, "5 in 1h tier 24/48")
			want("192.0.2.3", `"crawlers";r=97 "crawlers:16/32";r=0`, "")
			inspect("192.0.2.3")
			if len(i.Tiers) != 2 || i.Tiers[0].Override == nil || i.Tiers[0].DecidedBy != control.SourceOverride || i.Passes() {
				t.Errorf("inspected with an exempt network: got %+v", i.Tiers)
			}
			byRequest := c.inspectRequest("/", map[string]string{"X-Forwarded-For": "192.0.2.3"}).Zones[0]
			if byRequest.Limits[0].Source != control.SourceOverride || len(byRequest.Tiers) != 2 || byRequest.Tiers[0].DecidedBy != control.SourceOverride ||
				byRequest.Tiers[1].Key != "192.0.0.0/16" || byRequest.Tiers[1].Limits[0].Source != control.SourceConfig || byRequest.Tiers[1].Override != nil {
				t.Errorf("inspected by request: got %+v", byRequest.Tiers)
			}
			set(map[string]any{"all": true, "factor": 2}, "")
			want("192.0.2.3", `"crawlers";r=96 "crawlers:16/32";r=8`, "")
			set(map[string]any{"key": "192.0.2.0/24", "deny": true}, "5 in 1h tier 24/48")
			if resp := c.sendFrom("192.0.2.9", "/"); resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("an address of a denied network: got %d", resp.StatusCode)
			}
			inspect("192.0.2.9")
			if i.Passes() || i.Tiers[0].Key != "192.0.2.0/24" || i.Tiers[0].Tier != "24/48" || i.Tiers[0].Override == nil {
				t.Errorf("inspected with a denied network: got %+v", i)
			}
			set(map[string]any{"key": "192.0.2.9", "exempt": true}, "3 in 1h, 5 in 1h tier 24/48, 9 in 1h tier 16/32")
			if resp := c.sendFrom("192.0.2.9", "/"); resp.StatusCode != http.StatusOK || resp.Header.Get("RateLimit") != "" {
				t.Errorf("an exempt address in a denied network: got %d %s", resp.StatusCode, resp.Header.Get("RateLimit"))
			}

			var reset control.Reset
			c.post("reset", map[string]any{"zone": "crawlers", "key": "192.0.0.0/16"}, http.StatusOK, &reset)
			if reset.Tier != "16/32" || reset.Key != "192.0.0.0/16" || !reset.Done {
				t.Errorf("reset: got %+v", reset)
			}
			want("192.0.3.1", `"crawlers";r=4 "crawlers:24/48";r=8 "crawlers:16/32";r=17`, "")
			if status, text := c.ask(http.MethodPost, "/sliding_window/overrides/replace", "application/json", `{"records":[]}`); status != http.StatusOK {
				t.Errorf("replace: got %d %s", status, text)
			}
		})
	}
}

// In shadow, tiers count all or nothing, too, and let everything pass.
func TestTiersInShadow(t *testing.T) {
	server := redistest.Start(t)
	for _, store := range []string{"memory", "redis redis://" + server.Addr} {
		t.Run(strings.Fields(store)[0], func(t *testing.T) {
			c := newControlled(t, trustsProxies+"sliding_window {\nstore "+store+"\n}\n", tierZones)
			before := c.zoneOutcomes("shadow")
			for i, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"} {
				if resp := c.sendFrom(address, "/shadow"); resp.StatusCode != http.StatusOK || resp.Header.Get("RateLimit") != "" {
					t.Errorf("got %d %v", resp.StatusCode, resp.Header)
				}
				caddyrun.Eventually(t, 20*time.Second, "it is counted", func() bool {
					after := c.zoneOutcomes("shadow")
					return after["shadow_allowed"]+after["shadow_denied"]-before["shadow_allowed"]-before["shadow_denied"] == int64(i+1)
				})
			}
			if after := c.zoneOutcomes("shadow"); after["shadow_allowed"]-before["shadow_allowed"] != 5 || after["shadow_denied"]-before["shadow_denied"] != 2 {
				t.Errorf("got %v after %v, want 5 more shadow_allowed and 2 shadow_denied", after, before)
			}
			for tier, want := range map[string][2]string{"": {"192.0.2.1 3 192.0.2.2 2", "192.0.2.1 1"}, "24/48": {"192.0.2.0/24 5", "192.0.2.0/24 1"}} {
				for i, by := range []string{"charged", "denied"} {
					var top control.Top
					c.post("top", map[string]any{"zone": "shadow", "by": by, "tier": tier}, http.StatusOK, &top)
					var got []string
					for _, k := range top.Keys {
						got = append(got, fmt.Sprint(k.Key, " ", k.Count))
					}
					if strings.Join(got, " ") != want[i] {
						t.Errorf("%s of tier %q: got %v, want %s", by, tier, got, want[i])
					}
				}
			}
			var i control.RequestInspection
			c.post("inspect", map[string]any{"request": map[string]any{"uri": "http://" + c.site + "/shadow", "remote": "127.0.0.1", "headers": map[string]any{"X-Forwarded-For": "192.0.2.9"}}}, http.StatusOK, &i)
			if text, _ := json.Marshal(i.Zones); len(i.Zones) != 1 || len(i.Zones[0].Tiers) != 1 || i.Zones[0].Passes() || i.Zones[0].Limits[0].Used != 0 || i.Zones[0].Tiers[0].Limits[0].Used != 5 {
				t.Errorf("inspected: %s", text)
			}
		})
	}
}

// zoneOutcomes returns what a zone has decided since the process began.
func (c *controlled) zoneOutcomes(zone string) map[string]int64 {
	c.Helper()
	_, text := c.ask(http.MethodGet, "/sliding_window/zones", "", "")
	var all control.Zones
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		c.Fatalf("%s: %v", text, err)
	}
	for _, z := range all.Zones {
		if z.Name == zone {
			return z.Outcomes
		}
	}
	c.Fatalf("no zone %s in %s", zone, text)
	return nil
}
