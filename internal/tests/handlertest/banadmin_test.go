package handlertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// underBan returns a handler with the zone of the test, which bans, and the zone.
func underBan(t *testing.T, zone, more string) (caddyhttp.MiddlewareHandler, *running.ActiveZone) {
	t.Helper()
	h, _ := operated(t, OfZone(t, zone+`"ban":{"for":"10m","max":"10m"},`+TwoAnHour, more))
	return h, running.Zones.Find(ZoneName(t))[0][0]
}

// askBans asks the admin API about bans of the test's zone. ZONE is the name of the zone.
func askBans(t *testing.T, path, body string) (c control.BanChange) {
	t.Helper()
	body = strings.Replace(body, "ZONE", ZoneName(t), 1)
	if text := Admin(t, http.MethodPost, "bans/"+path, body); json.Unmarshal([]byte(text), &c) != nil {
		t.Fatalf("%s %s: %s", path, body, text)
	}
	return c
}

// listed returns what is listed as banned in the test's zone.
func listed(t *testing.T) (keys []string) {
	t.Helper()
	list := told[control.BanList](t, http.MethodGet, "bans?zone="+ZoneName(t), "")
	for _, b := range list.Stores[0].Bans {
		switch {
		case b.Key != nil:
			keys = append(keys, *b.Key)
		default:
			keys = append(keys, b.CIDR+b.KeyHash)
		}
	}
	if list.Stores[0].Count != len(keys) {
		t.Errorf("%d bans are listed, and %d counted", len(keys), list.Stores[0].Count)
	}
	slices.Sort(keys)
	return keys
}

func wantBans(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := listed(t); !slices.Equal(got, want) {
		t.Errorf("%s: %q are banned, want %q", what, got, want)
	}
}

// stores of bans, as JSON of a handler.
func banStores(t *testing.T) map[string]string {
	return map[string]string{
		"memory": "", "redis": `,"store":{"module":"redis","address":["` + redistest.Start(t).Addr + `"],"timeout":"10s"}`,
	}
}

// Operators ban keys and networks, list them, and lift them by key, network, all and time.
func TestBansAreSetAndLifted(t *testing.T) {
	for name, store := range banStores(t) {
		t.Run(name, func(t *testing.T) {
			_, z := underBan(t, "", store)
			set := askBans(t, "set", `{"zone":"ZONE","key":"192.0.2.1","ttl":"1h","reason":"TICKET-7","by":"anna"}`)
			if b := set.Bans[0]; *b.Key != "192.0.2.1" || b.Left < 3590 || b.Left > 3600 || b.Until.Sub(b.Began) != time.Hour || b.Reason != "TICKET-7" || b.By != "anna" {
				t.Errorf("set: %+v", set)
			}
			if isShared := set.Note != ""; isShared != (name == "redis") {
				t.Errorf("the note is %q", set.Note)
			}
			for _, key := range []string{"192.0.2.2", "192.0.3.1", "2001:db8:1::7"} {
				askBans(t, "set", `{"zone":"ZONE","key":"`+key+`"}`)
			}
			time.Sleep(2 * time.Millisecond) // else it began with the last
			network := askBans(t, "set", `{"zone":"ZONE","cidr":"192.0.2.128/25"}`)
			if b := network.Bans[0]; b.CIDR != "192.0.2.128/25" || b.Key != nil || b.By != "192.0.2.1" || b.Left < 590 || b.Left > 600 {
				t.Errorf("a network: %+v", b)
			}
			wantBans(t, "all", "192.0.2.1", "192.0.2.128/25", "192.0.2.2", "192.0.3.1", "2001:db8:1::/64")
			if _, is := z.Bans.Ban("192.0.2.200", false); !is {
				t.Error("the network is not banned")
			}
			if got := status(t).Bans; !slices.Contains(got, control.ZoneBans{Zone: z.Name(), Store: z.Store.Name(), Bans: 5}) {
				t.Errorf("status: %+v", got)
			}
			newest := told[control.BanList](t, http.MethodGet, "bans?newest=1&zone="+z.Name(), "").Stores[0]
			if len(newest.Bans) != 1 || newest.Bans[0].CIDR == "" || newest.Count != 5 {
				t.Errorf("the newest: %+v", newest)
			}

			lifted := askBans(t, "lift", `{"zone":"ZONE","key":"192.0.3.1"}`)
			if len(lifted.Bans) != 1 || *lifted.Bans[0].Key != "192.0.3.1" {
				t.Errorf("lifted: %+v", lifted)
			}
			askBans(t, "lift", `{"cidr":"192.0.2.0/24"}`)
			wantBans(t, "by network", "2001:db8:1::/64")
			askBans(t, "set", `{"zone":"ZONE","key":"192.0.2.1"}`)
			askBans(t, "lift", `{"zone":"ZONE","all":true}`)
			wantBans(t, "all are lifted")
			if text := Admin(t, http.MethodPost, "bans/lift", `{"zone":"`+z.Name()+`","all":true}`); !strings.HasPrefix(text, "there is no such ban") {
				t.Errorf("again: %s", text)
			}
		})
	}
}

// A lift by time frees those that were banned since, and no others; and their next denial is no strike.
func TestAmnesty(t *testing.T) {
	for name, store := range banStores(t) {
		t.Run(name, func(t *testing.T) {
			h, z := underBan(t, ofKey, store)
			strike := func(key string) {
				if passes(t, h, key, 3) != 2 {
					t.Errorf("%s is not denied once", key)
				}
				Poll(t, key+" is banned", func() bool { _, is := z.Bans.Ban(key, false); return is })
			}
			strike("192.0.2.1")
			time.Sleep(20 * time.Millisecond) // bans that began at different times
			strike("192.0.2.2")
			incident := told[control.BanList](t, http.MethodGet, "bans?zone="+z.Name(), "").Stores[0].Bans[1]
			strike("192.0.2.3")
			if b := incident; b.By != "" || b.Key == nil || *b.Key != "192.0.2.2" {
				t.Fatalf("the second ban is %+v", b)
			}
			at, _ := incident.Began.MarshalText()
			lifted := askBans(t, "lift", fmt.Sprintf(`{"since":%q,"zone":"ZONE"}`, at))
			if len(lifted.Bans) != 2 {
				t.Errorf("lifted: %+v", lifted)
			}
			wantBans(t, "before the incident", "192.0.2.1")
			time.Sleep(1100 * time.Millisecond) // one strike counts a second
			for _, key := range []string{"192.0.2.2", "192.0.2.3"} {
				if w := Serve(t, Get("X-Key", key), h); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "quota-exceeded") {
					t.Errorf("%s: the limit still counts: got %d %s", key, w.Code, w.Body)
				}
			}
			strike("192.0.2.4")
			wantBans(t, "after the next denials", "192.0.2.1", "192.0.2.4")
		})
	}
}

// A ban by denials that comes after one of an operator is not the operator's.
func TestBanIsNotTheOperatorsAnyMore(t *testing.T) {
	for name, store := range banStores(t) {
		t.Run(name, func(t *testing.T) {
			h, z := underBan(t, ofKey, store)
			askBans(t, "set", `{"zone":"ZONE","key":"anna","ttl":"1s","reason":"TICKET-7"}`)
			Poll(t, "the ban is over", func() bool { _, is := z.Bans.Ban("anna", false); return !is })
			passes(t, h, "anna", 3)
			Poll(t, "anna is banned", func() bool { _, is := z.Bans.Ban("anna", false); return is })
			if b := told[control.BanList](t, http.MethodGet, "bans?zone="+z.Name(), "").Stores[0].Bans[0]; b.By != "" || b.Reason != "" {
				t.Errorf("the ban by denials is %+v", b)
			}
		})
	}
}

// With several placeholders a key has values, and with hash_keys a hash: both are lifted by what they are of.
func TestBansOfValuesAndHashes(t *testing.T) {
	server := redistest.Start(t).Addr
	_, z := underBan(t, `"key":"{http.request.header.A}/{http.request.header.B}",`, `,"store":{"module":"redis","address":["`+server+`"],"timeout":"10s","hash_keys":[`+secretA+`]}`)
	askBans(t, "set", `{"zone":"ZONE","values":["acme","anna"]}`)
	askBans(t, "set", `{"zone":"ZONE","values":["acme","otto"]}`)
	if got := listed(t); len(got) != 2 || len(got[0]) != 43 {
		t.Errorf("hashes: %q", got)
	}
	askBans(t, "lift", `{"zone":"ZONE","values":["acme","anna"]}`)
	if _, is := z.Bans.Ban("4:acme/4:otto", false); !is || len(listed(t)) != 1 {
		t.Errorf("otto is banned: %t, and listed are %q", is, listed(t))
	}
	for path, want := range map[string]string{
		"lift":                             "cidr: no such network is banned; with hash_keys no address is kept: keys in the network that are banned stay so; lift them with key, since or all",
		"bans?format=nft&zone=" + z.Name(): "zone: its store has hash_keys, which keeps no address of a client; the zone denies them all the same",
	} {
		text := Admin(t, http.MethodGet, path, "")
		if path == "lift" {
			text = Admin(t, http.MethodPost, "bans/lift", `{"zone":"`+z.Name()+`","cidr":"192.0.2.0/24"}`)
		}
		if text != want {
			t.Errorf("%s: got %s, want %s", path, text, want)
		}
	}
}

// A ban under a former secret is lifted by its key.
func TestBanUnderAFormerSecretIsLifted(t *testing.T) {
	server := redistest.Start(t).Addr
	load := func(secrets string) (stop func()) {
		_, ctx := New(t, OfZone(t, ofKey+`"ban":{"for":"10m"},`+TwoAnHour, `,"store":{"module":"redis","address":["`+server+`"],"timeout":"10s","hash_keys":[`+secrets+`]}`))
		return Start(t, ctx)
	}
	stop := load(secretA)
	askBans(t, "set", `{"zone":"ZONE","key":"anna"}`)
	askBans(t, "set", `{"zone":"ZONE","key":"otto"}`)
	stop()
	load(secretB + "," + secretA)
	if lifted := askBans(t, "lift", `{"zone":"ZONE","key":"anna"}`); len(lifted.Bans) != 1 {
		t.Errorf("lifted: %+v", lifted)
	}
	if got := listed(t); len(got) != 1 {
		t.Errorf("left are %q", got)
	}
}

// A zone that two stores have has bans on each: a key needs the store, and a time frees those of both.
func TestBansOfTwoStores(t *testing.T) {
	stores := banStores(t)
	_, a := underBan(t, ofKey, stores["memory"])
	underBan(t, ofKey, stores["redis"])
	redis := running.Zones.Find(ZoneName(t))[1][0].Store.Name()
	if text := Admin(t, http.MethodPost, "bans/set", `{"zone":"`+a.Name()+`","key":"anna"}`); !strings.HasPrefix(text, "store: required, as several stores have this zone") {
		t.Errorf("without a store: %s", text)
	}
	for _, store := range []string{"memory", redis} {
		askBans(t, "set", `{"zone":"ZONE","key":"anna","store":"`+store+`"}`)
	}
	list := func() (n []int) {
		for _, s := range told[control.BanList](t, http.MethodGet, "bans?zone="+a.Name(), "").Stores {
			n = append(n, s.Count)
		}
		return n
	}
	if got := list(); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("bans by store: %v", got)
	}
	if lifted := askBans(t, "lift", `{"since":"10m","store":"`+redis+`"}`); len(lifted.Bans) != 1 || lifted.Note == "" || !slices.Equal(list(), []int{1, 0}) {
		t.Errorf("lifted on one store: %+v, left are %v", lifted, list())
	}
	askBans(t, "set", `{"zone":"ZONE","key":"otto","store":"`+redis+`"}`)
	if lifted := askBans(t, "lift", `{"since":"10m"}`); len(lifted.Bans) != 2 || !slices.Equal(list(), []int{0, 0}) {
		t.Errorf("lifted: %+v, left are %v", lifted, list())
	}
}

// What cannot be done is refused, with the reason and what to do.
func TestBansAreRefused(t *testing.T) {
	plain := "plain." + ZoneName(t)
	operated(t, `{"zones":[{"name":"`+plain+`",`+TwoAnHour+`}]}`)
	_, z := underBan(t, ofKey, "")
	without := func(what string) string { return strings.ReplaceAll(what, "ZONE", z.Name()) }
	for body, want := range map[string]string{
		`{"zone":"ZONE","key":"a"}`:                       "",
		`{"zone":"ZONE"}`:                                 "key: required, or values or cidr",
		`{"key":"a"}`:                                     "zone: required; GET /sliding_window/zones lists the zones",
		`{"cidr":"192.0.2.0/24"}`:                         "zone: required; GET /sliding_window/zones lists the zones",
		`{"zone":"ZONE","key":"a","cidr":"192.0.2.0/24"}`: "key: 2 of key, values, cidr and all are given; send one of them",
		`{"zone":"ZONE","cidr":"192.0.2.1/24"}`:           "cidr: has bits below its length; write 192.0.2.0/24",
		`{"zone":"ZONE","cidr":"0.0.0.0/0"}`:              "cidr: is every address; to deny all requests, set an override with all and deny; to lift all bans, send all",
		`{"zone":"ZONE","cidr":"2001:db8::/96"}`:          "cidr: is longer than /64, by which the zone groups addresses; send key, or a shorter network",
		`{"zone":"ZONE","key":"a","ttl":"367d"}`:          "ttl: must be a duration from 1s to 366d, such as 1h; to deny for good, set an override with deny",
		`{"zone":"ZONE","key":"a","for":"1h"}`:            "body: unknown field; use zone, store, key, values, cidr, ttl, reason and by",
		`{"zone":"ZONE","all":true}`:                      "body: unknown field; use zone, store, key, values, cidr, ttl, reason and by",
		`{"zone":"ZONE","key":"a","request":{"uri":"x"}}`: "request: only inspect takes one; send zone, and key, values or cidr",
		`{"zone":"other","key":"a"}`:                      `zone: no zone of this name runs; use one of "ZONE", "plain.ZONE"; GET /sliding_window/zones lists the zones`,
		`lift {}`:                                         "key: required, or values, cidr, all or since",
		`lift {"all":true}`:                               "zone: required; GET /sliding_window/zones lists the zones",
		`lift {"key":"a"}`:                                "zone: required; GET /sliding_window/zones lists the zones",
		`lift {"since":"yesterday"}`:                      "since: must be a time as 2026-12-31T23:59:59Z, a time of today as 14:00, or how long ago, as 30m",
		`lift {"since":"2199-01-01T00:00:00Z"}`:           "since: is still to come; name a time that is over, with its date if it was yesterday",
		`lift {"cidr":"10.0.0.0/8"}`:                      "there is no such ban; GET /sliding_window/bans lists them",
		`lift {"zone":"ZONE","key":"b"}`:                  "there is no such ban; GET /sliding_window/bans lists them",
		`lift {"zone":"ZONE","key":"a","ttl":"1h"}`:       "body: unknown field; use zone, store, key, values, cidr, all, since, reason and by",
		`list bans?format=xml`:                            "format: must be json, text, nft or ipset",
		`list bans?key=a`:                                 "query: unknown name; use zone, store, shadow, format and newest",
		`list bans?newest=x`:                              "newest: must be a whole number from 1 on",
		`list bans?format=nft`:                            "zone: required with format nft, which is of one zone",
		`list bans?format=text&zone=ZONE`:                 "zone: its key is {header.X-Key}, and no address that another program could deny",
		`list bans?store=other`:                           `store: no zone that runs has a store of this name; use one of "memory"`,
		`list bans?zone=other`:                            `zone: no zone of this name runs; use one of "ZONE", "plain.ZONE"; GET /sliding_window/zones lists the zones`,
	} {
		method, path := http.MethodPost, "bans/set"
		if rest, ok := strings.CutPrefix(body, "lift "); ok {
			path, body = "bans/lift", rest
		} else if rest, ok := strings.CutPrefix(body, "list "); ok {
			method, path = http.MethodGet, without(rest)
		}
		if text := Admin(t, method, path, without(body)); want == "" && !strings.HasPrefix(text, "{") || want != "" && text != without(want) {
			t.Errorf("%s %s: got %s, want %s", path, body, text, without(want))
		}
	}
	if text := Admin(t, http.MethodPost, "bans/set", `{"zone":"`+plain+`","key":"a"}`); text != "zone: has no bans; write ban in it, or deny a key or a network for a time with an override" {
		t.Errorf("a zone without ban: got %s", text)
	}
}

// A network that a tier counts is banned as a network.
func TestBanOfATierIsRefused(t *testing.T) {
	operated(t, OfZone(t, `"ban":{"for":"10m"},"limits":[{"max":2,"window":"1h"},{"max":9,"window":"1h","tier":"24/48"}]`, ""))
	const want = "key: is a network that a tier counts, and no key that is banned; send cidr"
	if text := Admin(t, http.MethodPost, "bans/set", `{"zone":"`+ZoneName(t)+`","key":"192.0.2.0/24"}`); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	askBans(t, "set", `{"zone":"ZONE","cidr":"192.0.2.0/24"}`)
	wantBans(t, "the network", "192.0.2.0/24")
}

// While the store is away, nothing changes, and the list has what is known.
func TestBansWhileTheStoreIsAway(t *testing.T) {
	server := redistest.Start(t)
	_, z := underBan(t, ofKey, `,"store":{"module":"redis","address":["`+server.Addr+`"],"timeout":"200ms"}`)
	askBans(t, "set", `{"zone":"ZONE","key":"anna"}`)
	server.Stop()
	for path, body := range map[string]string{"set": `{"zone":"ZONE","key":"otto"}`, "lift": `{"zone":"ZONE","all":true}`} {
		text := Admin(t, http.MethodPost, "bans/"+path, strings.Replace(body, "ZONE", z.Name(), 1))
		if !strings.Contains(text, "nothing was changed, and the bans that hold stay in force; repeat it when GET /sliding_window/status says ok") {
			t.Errorf("%s: got %s", path, text)
		}
	}
	s := told[control.BanList](t, http.MethodGet, "bans?zone="+z.Name(), "").Stores[0]
	if s.Store.State != control.StateAway || s.Store.Cause == "" || len(s.Bans) != 1 || *s.Bans[0].Key != "anna" {
		t.Errorf("the list is %+v", s)
	}
}

// nftLine and ipsetLine match what nft and ipset read: nft 1.0.6 and ipset 7.17 have loaded such files.
var (
	nftLine   = regexp.MustCompile(`^(add table inet sliding_window|(add|flush) set inet sliding_window sw[46]_[\w.-]+( \{ type ipv[46]_addr; flags interval, timeout; \})?|add element inet sliding_window sw[46]_[\w.-]+ \{|\t[0-9a-f.:/]+ timeout [1-9]\d*s,|\})$`)
	ipsetLine = regexp.MustCompile(`^(create sw[46]_[\w.-]{1,27} hash:net family inet6? maxelem \d+ timeout 0|(flush|destroy) sw[46]_[\w.-]+_new|add sw[46]_[\w.-]+_new [0-9a-f.:/]+ timeout [1-9]\d*|swap sw[46]_[\w.-]+_new sw[46]_[\w.-]+)$`)
)

// The bans of a zone whose key is the address of the connection can be handed to other programs: networks that are in
// others, keys that the zone does not deny, and bans of other zones are left out.
func TestBansAreExported(t *testing.T) {
	_, z := underBan(t, `"key":"{http.request.remote.host}",`, "")
	for _, body := range []string{
		`"key":"192.0.2.1","ttl":"1h"`, `"key":"192.0.2.9"`, `"key":"198.51.100.7"`, `"cidr":"198.51.100.0/24","ttl":"366d"`, `"cidr":"198.51.100.0/25"`,
		`"key":"2001:db8::7"`, `"key":"no address"`, `"key":"203.0.113.5"`, `"key":"192.0.2.200","ttl":"1s"`,
	} {
		askBans(t, "set", `{"zone":"ZONE",`+body+`}`)
	}
	if err := z.Store.Bans.SetKey(t.Context(), "another", "192.0.2.77", time.Hour, time.Hour, control.Why{}); err != nil {
		t.Fatal(err)
	}
	setRecords(t, overridestest.Exempt("203.0.113.5"))
	export := func(format string) string {
		return Admin(t, http.MethodGet, "bans?zone="+z.Name()+"&format="+format, "")
	}
	timeout := regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+\S*) timeout (\d+)`)
	for format, line := range map[string]*regexp.Regexp{"nft": nftLine, "ipset": ipsetLine} {
		text := export(format)
		for l := range strings.Lines(text) {
			if !line.MatchString(strings.TrimSuffix(l, "\n")) {
				t.Errorf("%s: %s", format, l)
			}
		}
		var got []string
		for _, m := range timeout.FindAllStringSubmatch(text, -1) {
			got = append(got, m[1])
			n, _ := strconv.Atoi(m[2])
			most := map[string]int{"192.0.2.1": 3600, "192.0.2.9": 600, "192.0.2.200": 1, "198.51.100.0/24": 366 * 86400}[m[1]]
			if format == "ipset" {
				most = min(most, 2147483)
			}
			if n > most || n < most-10 {
				t.Errorf("%s: %s lasts %d s, want %d", format, m[1], n, most)
			}
		}
		if want := []string{"192.0.2.1", "192.0.2.9", "192.0.2.200", "198.51.100.0/24"}; !slices.Equal(got, want) && !slices.Equal(got, slices.Delete(want, 2, 3)) {
			t.Errorf("%s has %q, want %q", format, got, want)
		}
		if !strings.Contains(text, "2001:db8::/64 timeout ") {
			t.Errorf("%s lacks the network of IPv6: %s", format, text)
		}
	}
	if text := export("text"); !strings.HasPrefix(text, "192.0.2.1\n192.0.2.9\n") || !strings.HasSuffix(text, "\n198.51.100.0/24\n2001:db8::/64\n") {
		t.Errorf("text: %q", text)
	}
	setEnforce(t, z.Name(), "shadow", "1h")
	if text := export("text"); text != "" {
		t.Errorf("in shadow: %q", text)
	}
	if text := export("nft"); strings.Contains(text, "element") || strings.Count(text, "flush") != 2 {
		t.Errorf("in shadow: %q", text)
	}
	setEnforce(t, z.Name(), "config", "")
}

// What a kernel would drop wrongly is not exported, nor what has no name there.
func TestExportIsRefused(t *testing.T) {
	_, z := underBan(t, "", "") // no server runs of which this could be told
	for format, want := range map[string]string{
		"nft": "zone: its key is {client_ip}, and a server has trusted_proxies: ", "ipset": "zone: its key is {client_ip}, and a server has trusted_proxies: ", "text": "",
	} {
		if text := Admin(t, http.MethodGet, "bans?zone="+z.Name()+"&format="+format, ""); !strings.HasPrefix(text, want) || want == "" && text != "" {
			t.Errorf("%s: got %s", format, text)
		}
	}
	t.Run("long", func(t *testing.T) {
		_, z := underBan(t, `"key":"{http.request.remote.host}",`, "")
		text := Admin(t, http.MethodGet, "bans?format=ipset&zone="+z.Name(), "")
		if want := "zone: sw4_" + z.Name() + "_new would be longer than the 31 bytes of a name of ipset; use format nft, or a shorter name"; text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	})
}
