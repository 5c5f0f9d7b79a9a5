package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// controlled is the Caddy of this process, with sites and an admin endpoint.
type controlled struct {
	*testing.T
	client *http.Client
	admin  string // host:port
	site   string
}

// newControlled loads directives for a site, and global options.
func newControlled(t *testing.T, global, directives string) *controlled {
	t.Helper()
	c := &controlled{t, caddyrun.NewClient(t), caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)}
	t.Cleanup(func() {
		_ = loadCaddy("{\nadmin off\npersist_config off\n}") // ends the admin endpoint, which Stop leaves
		_ = caddy.Stop()
		c.client.CloseIdleConnections()
	})
	if err := c.load(global, directives); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *controlled) load(global, directives string) error {
	return loadCaddy(fmt.Sprintf("{\nadmin %s\npersist_config off\nauto_https off\nstorage_clean_interval off\nlog {\noutput discard\n}\n%s\n}\nhttp://%s {\n%s\n}\n", c.admin, global, c.site, directives))
}

// ask sends something to the admin API, and returns the status and the body of the answer.
func (c *controlled) ask(method, path, contentType, body string) (int, string) {
	c.Helper()
	req, err := http.NewRequest(method, "http://"+c.admin+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := c.client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// post posts a selector, wants a status, and reads the answer.
func (c *controlled) post(path string, selector map[string]any, want int, answer any) {
	c.Helper()
	body, _ := json.Marshal(selector)
	status, text := c.ask(http.MethodPost, "/sliding_window/"+path, "application/json", string(body))
	if status != want {
		c.Fatalf("POST %s %s: got %d %s, want %d", path, body, status, text, want)
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		c.Fatal(err)
	}
}

func (c *controlled) inspect(zone, key string) (i control.Inspection) {
	c.Helper()
	c.post("inspect", map[string]any{"zone": zone, "key": key}, http.StatusOK, &i)
	return i
}

// request sends a request with a key to the directives of a zone.
func (c *controlled) request(zone, key string) (status int, remaining int64, retryAfter float64) {
	c.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+c.site+"/"+zone, nil)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("X-Key", key)
	resp, err := c.client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	remaining, _ = strconv.ParseInt(resp.Header.Get("X-RateLimit-Remaining"), 10, 64)
	retryAfter, _ = strconv.ParseFloat(resp.Header.Get("Retry-After"), 64)
	return resp.StatusCode, remaining, retryAfter
}

// controlledZones are the options of a zone of each kind.
var controlledZones = map[string]string{
	"zset":     "limit 7 1h",
	"two":      "limit 5 30m\nlimit 9 2h",
	"cost":     "limit 11 1h\ncost 3",
	"log":      "limit 7 1h\nalgorithm log",
	"stream":   "limit 7 1h\nalgorithm stream",
	"slices":   "limit 7 1h\nalgorithm slices",
	"weighted": "limit 7 1h\nalgorithm slices {\nweighted\n}",
	"layers":   "limit 7 1h\nalgorithm slices {\nlayers 1m 10s\n}",
	"adaptive": "limit 7 1h\nalgorithm slices {\nadaptive 1m 10m\n}",
	"gcra":     "limit 7 1h\nalgorithm gcra {\nburst 4\n}",
	"packed":   "limit 7 1h\nalgorithm gcra\npack 1000",
	"packed3":  "limit 7 1h\nalgorithm slices {\ncount 3\n}\npack 1000",
	"leased":   "limit 60 1h\nlease 8 10m",
}

func zonesWith(store string) string {
	var all strings.Builder
	for name, options := range controlledZones {
		fmt.Fprintf(&all, "handle /%s {\nsliding_window {\nzone %[1]s {\nkey {header.X-Key}\n%s\n}\nheaders legacy\n%s\n}\nrespond ok\n}\n", name, options, store)
	}
	return all.String()
}

// What inspect says is what the next request meets, in random states of every algorithm and
// store, and nothing is spent. A reset lets the whole limit pass at once.
func TestInspectIsTheNextRequest(t *testing.T) {
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3)
	for name, store := range map[string]string{
		"memory":  "",
		"redis":   "store redis {\naddress " + server.Addr + "\ntimeout 10s\n}",
		"hashed":  "store redis {\naddress " + server.Addr + "\ntimeout 10s\nprefix hashed\nhash_keys \"a secret of 16 bytes or more\" \"a former secret of 16 bytes\"\n}",
		"cluster": "store redis {\naddress " + nodes[0].Addr + "\ncluster\ntimeout 10s\n}",
	} {
		t.Run(name, func(t *testing.T) {
			c := newControlled(t, "", zonesWith(store))
			random, by := mathrand.New(mathrand.NewPCG(1, 2)), make(map[string]int)
			for zone := range controlledZones {
				keys, states := []string{rand.Text(), rand.Text(), "a key: with {braces} & é"}, 15
				if zone == "leased" {
					keys, states = keys[:1], 70
				}
				for range states {
					key := keys[random.IntN(len(keys))]
					for range random.IntN(3) {
						c.request(zone, key)
					}
					by[c.checkNext(zone, key)]++
				}
				for _, key := range keys {
					c.checkReset(zone, key)
				}
			}
			if name == "redis" && (by["redis"] < 50 || by["remembered"] < 10 || by["lease"] < 5) {
				t.Errorf("requests were decided by %v", by)
			}
		})
	}
}

// checkNext wants the next request to meet what inspect says. It returns what decides.
func (c *controlled) checkNext(zone, key string) string {
	c.Helper()
	said := c.inspect(zone, key)
	if again := c.inspect(zone, key); again.Passes() != said.Passes() || again.Limits[0].Remaining != said.Limits[0].Remaining {
		c.Errorf("%s: inspect says %+v, and then %+v", zone, said, again)
	}
	status, remaining, retryAfter := c.request(zone, key)
	least, longest, never := int64(math.MaxInt64), 0.0, false
	for _, l := range said.Limits {
		least = min(least, l.Remaining)
		if l.Used+l.Remaining > l.Max && zone != "gcra" {
			c.Errorf("%s: %+v: used and remaining are more than the limit", zone, l)
		}
		if never = never || l.RetryAfter == nil; !never {
			longest = max(longest, *l.RetryAfter)
		}
	}
	if said.Passes() {
		least -= *said.Cost
	} else if zone == "two" {
		least = remaining // the header is about the limit that denies for longest
	}
	if want := map[bool]int{true: 200, false: 429}[said.Passes()]; status != want || remaining != least || math.Abs(retryAfter-math.Ceil(longest)) > 2 || never {
		c.Errorf("%s: inspect says %+v; got status %d, %d remaining, Retry-After %v", zone, said, status, remaining, retryAfter)
	}
	return said.DecidedBy
}

// checkReset wants a key that is used up to have its whole limit after a reset.
func (c *controlled) checkReset(zone, key string) {
	c.Helper()
	status := 200
	for n := 0; status == 200 && n < 100; n++ {
		status, _, _ = c.request(zone, key)
	}
	before := c.inspect(zone, key)
	var answer control.Reset
	c.post("reset", map[string]any{"zone": zone, "key": key}, http.StatusOK, &answer)
	after := c.inspect(zone, key)
	if status != 429 || before.Passes() || !answer.Done || !after.Passes() || after.Limits[0].Used != 0 {
		c.Errorf("%s: status %d and %+v before, %+v after the reset: %+v", zone, status, before, after, answer)
	}
	status, remaining, _ := c.request(zone, key)
	if want := after.Limits[0].Remaining - *after.Cost; status != 200 || remaining != want {
		c.Errorf("%s: after the reset: got status %d, %d remaining, want %d", zone, status, remaining, want)
	}
}

// While Redis is away inspect says so, and what local counts decide. A reset is answered with
// 202, lets requests pass at once, and reaches Redis when it is back.
func TestControlWhileAway(t *testing.T) {
	server := redistest.Start(t)
	c := newControlled(t, "", zonesWith("store redis {\naddress "+server.Addr+"\ntimeout 200ms\n}"))
	key := rand.Text()
	for range 4 {
		caddyrun.Eventually(t, 20*time.Second, "Redis decides", func() bool { return c.inspect("log", key).DecidedBy == "redis" })
		c.request("log", key)
	}
	server.Stop()
	defer server.Cont()
	if got := c.checkNext("log", key); got != "local" {
		t.Errorf("decided by %s", got)
	}
	caddyrun.Eventually(t, 20*time.Second, "the status says away", func() bool {
		c.request("log", key)
		_, text := c.ask(http.MethodGet, "/sliding_window/status", "", "")
		return strings.Contains(text, `"state":"away","since":"`)
	})
	for range 8 {
		c.request("log", key)
	}
	said := c.inspect("log", key)
	if said.Passes() || said.DecidedBy != "local" || said.Store.State != control.StateAway || said.Store.Since == "" || said.Store.Cause == "" {
		t.Errorf("while Redis is away: inspect says %+v", said)
	}
	var answer control.Reset
	c.post("reset", map[string]any{"zone": "log", "key": key}, http.StatusAccepted, &answer)
	if answer.Done || answer.Note == "" {
		t.Errorf("the answer is %+v", answer)
	}
	for range 3 {
		c.checkNext("log", key)
	}
	server.Cont()
	caddyrun.Eventually(t, 20*time.Second, "Redis is back", func() bool { return c.inspect("log", key).DecidedBy == "redis" })
	if l := c.inspect("log", key).Limits[0]; l.Used != 3 {
		t.Errorf("when Redis is back %+v, want 3 used", l)
	}
}

// Where local counts do not decide, inspect answers 503 with the cause.
func TestInspectWithoutLocalCounts(t *testing.T) {
	server := redistest.Start(t)
	store := "store redis {\naddress " + server.Addr + "\ntimeout 200ms\n}\n"
	c := newControlled(t, "", "sliding_window {\nzone strict {\nkey {header.X-Key}\nlimit 5 1h\n}\n"+store+"on_error deny\n}")
	server.Kill()
	status, text := c.ask(http.MethodPost, "/sliding_window/inspect", "application/json", `{"zone":"strict","key":"client carmen"}`)
	if status != 503 || !strings.Contains(text, "store unavailable") || !strings.Contains(text, "on_error deny decides") || strings.Contains(text, "carmen") {
		t.Errorf("got %d %s", status, text)
	}
}

// The key is what the operator would see in the request: it is grouped, folded and spelt as one.
func TestInspectKeys(t *testing.T) {
	c := newControlled(t, "", `sliding_window {
	zone addresses {
		limit 5 1h
	}
	zone pairs {
		key {header.X-Tenant}/{header.X-User}
		fold_case
		limit 5 1h
	}
	zone paths {
		key "path {path}"
		limit 5 1h
	}
	zone everybody {
		key all
		limit 5 1h
	}
	zone quota {
		limit {header.X-Quota} 1h
		fallback 3 1h
	}
	zone named {
		key {header.X-Name}
		empty_key skip
		limit 5 1h
	}
}`)
	for _, test := range []struct {
		body string
		want int
		text string
	}{
		{`{"zone":"addresses","key":"2001:db8::1"}`, 200, `"key":"2001:db8::/64"`},
		{`{"zone":"addresses","key":"192.0.2.1:4711"}`, 200, `"key":"192.0.2.1`},
		{`{"zone":"addresses","key":"@"}`, 200, `"key":""`},
		{`{"zone":"pairs","values":["Acme"," ANNA "]}`, 200, `"key":"4:acme/4:anna"`},
		{`{"zone":"paths","key":"/x/..//login"}`, 200, `"key":"path /login"`},
		{`{"zone":"everybody"}`, 200, `"key":"all"`},
		{`{"zone":"quota","key":"192.0.2.1"}`, 200, `"would_pass":null,"enforce":"on","store":{"name":"memory","state":"ok"},"needs_request":{"limits":[{"max":"{header.X-Quota}","window":"1h","used":0,"reset_after":0}]}`},
		{`{"zone":"pairs","key":"carmen"}`, 400, `key: the zone's key has 2 placeholders; send values, in order`},
		{`{"zone":"pairs"}`, 400, `values: required; send the values of the key's 2 placeholders, in order`},
		{`{"zone":"pairs","values":["carmen"]}`, 400, `values: the zone's key has 2 placeholders; send one value for each, in order`},
		{`{"zone":"addresses"}`, 400, `key: required; send the value of the key's placeholder`},
		{`{"zone":"addresses","values":["carmen","carmen"]}`, 400, `values: the zone's key has one placeholder; send key`},
		{`{"zone":"everybody","key":"carmen"}`, 400, `key: the zone counts all requests together; leave key and values out`},
		{`{"zone":"named","key":""}`, 400, `key: empty, and with empty_key skip such requests are not counted`},
		{`{"zone":"carmen","key":"carmen"}`, 404, `zone: no zone of this name runs; use one of \"addresses\", \"everybody\", \"named\", \"pairs\", \"paths\", \"quota\"; GET /sliding_window/zones lists the zones`},
		{`{"zone":"addresses","store":"carmen","key":"carmen"}`, 404, `store: has no zone of this name; use one of \"memory\"`},
		{`{"zone":"addresses","key":["carmen"]}`, 400, `key: must be a string`},
	} {
		status, text := c.ask(http.MethodPost, "/sliding_window/inspect", "application/json", test.body)
		if status != test.want || !strings.Contains(text, test.text) || status != 200 && (strings.Contains(text, "carmen") || !strings.HasPrefix(text, `{"error":"`)) {
			t.Errorf("%s: got %d %s, want %d %s", test.body, status, text, test.want, test.text)
		}
	}
}

// A zone on several stores needs the name of one of them.
func TestInspectSeveralStores(t *testing.T) {
	server := redistest.Start(t)
	c := newControlled(t, "", "sliding_window api {header.X-Key} 5 1h {\nstore memory\n}\nsliding_window api {header.X-Key} 5 1h {\nstore redis {\naddress "+server.Addr+"\ntimeout 10s\n}\n}")
	key := rand.Text()
	status, text := c.ask(http.MethodPost, "/sliding_window/reset", "application/json", `{"zone":"api","key":"`+key+`"}`)
	if status != 400 || !strings.Contains(text, `store: required, as several stores have this zone; use one of \"memory\", \"redis `+server.Addr) {
		t.Errorf("without a store: got %d %s", status, text)
	}
	c.request("", key)
	for store, by := range map[string]string{"memory": "memory", "redis " + server.Addr + "/0 sw": "redis"} {
		var i control.Inspection
		c.post("inspect", map[string]any{"zone": "api", "store": store, "key": key}, http.StatusOK, &i)
		if i.DecidedBy != by || i.Store.Name != store || i.Limits[0].Used != 1 || (i.RedisKey != "") != (by == "redis") {
			t.Errorf("%s: inspect says %+v", store, i)
		}
	}
}

// An error about a zone that does not run names zones that do, ten at most.
func TestZonesThatRunAreNamed(t *testing.T) {
	c := newControlled(t, "", "respond ok")
	want := func(body, want string) {
		t.Helper()
		if _, text := c.ask(http.MethodPost, "/sliding_window/overrides/set", "application/json", body); strings.TrimSpace(text) != `{"error":"`+want+`"}` {
			t.Errorf("%s: got %s, want %s", body, text, want)
		}
	}
	want(`{"zone":"a","key":"k","deny":true}`, `zone: no zone runs; write sliding_window in the configuration`)
	var zones, named strings.Builder
	for i := range 12 {
		fmt.Fprintf(&zones, "sliding_window z%02d {header.X-Key} 5 1h\n", i)
		if i < 10 {
			fmt.Fprintf(&named, `, \"z%02d\"`, i)
		}
	}
	if err := c.load("", zones.String()); err != nil {
		t.Fatal(err)
	}
	c.client.CloseIdleConnections()
	list := "use one of " + named.String()[2:] + " or 2 others; GET /sliding_window/zones lists the zones"
	want(`{"zone":"a","key":"k","deny":true}`, "zone: no zone of this name runs; "+list)
	want(`{"key":"k","deny":true}`, "zone: required; "+list)
}

// Requests that make no sense are answered as Caddy answers them, and no key is in the log.
func TestAdminErrors(t *testing.T) {
	process := caddyrun.Start(t, "{\nadmin {admin}\npersist_config off\nauto_https off\ndebug\n}\nhttp://"+caddyrun.FreeAddress(t)+" {\nsliding_window api {client_ip} 5 1h\n}\n")
	caddyrun.Eventually(t, 20*time.Second, "the zone runs", func() bool {
		_, text := process.Tell(t, http.MethodGet, "/sliding_window/zones", "", "")
		return strings.Contains(text, `"name":"api"`)
	})
	const post, asJSON = http.MethodPost, "application/json"
	for _, test := range []struct {
		method, path, contentType, body string
		want                            int
		text                            string
	}{
		{http.MethodGet, "inspect", "", "", 405, "method not allowed; use POST"},
		{http.MethodDelete, "zones", "", "", 405, "method not allowed; use GET"},
		{http.MethodGet, "other", "", "", 404, "no such path; use zones, status, inspect, reset, enforce, top, bans or overrides/list below /sliding_window/"},
		{http.MethodGet, "", "", "", 404, "no such path"},
		{post, "inspect", "text/plain", `{"zone":"api","key":"secret-key"}`, 415, "Content-Type: must be application/json"},
		{post, "reset", "", `{"zone":"api","key":"secret-key"}`, 415, "Content-Type"},
		{post, "reset", asJSON, `{"zone":"api","key":"secret-key` + strings.Repeat("x", 70_000) + `"}`, 413, "body: longer than 65536 bytes"},
		{post, "reset", asJSON, `{"zone":"api","secret-key":1}`, 400, "body: unknown field"},
		{post, "reset", asJSON, `{"zone":"secret-key"}`, 404, "zone: no zone"},
		{post, "reset", asJSON + "; charset=utf-8", `{"zone":"api","key":"secret-key"}`, 200, `"done":true`},
		{post, "inspect", asJSON, `{"zone":"api","key":"secret-key"}`, 200, `"would_pass":true`},
	} {
		status, text := process.Tell(t, test.method, "/sliding_window/"+test.path, test.contentType, test.body)
		if status != test.want || !strings.Contains(text, test.text) || status >= 400 && (!strings.HasPrefix(text, `{"error":"`) || strings.Contains(text, "secret-key")) {
			t.Errorf("%s %s: got %d %s, want %d %s", test.method, test.path, status, text, test.want, test.text)
		}
	}
	process.Logged(t, "/sliding_window/inspect", "/sliding_window/reset")
	if log := process.Log.String(); strings.Contains(log, "secret-key") {
		t.Errorf("the log has a key:\n%s", log)
	}
}

// Zones are listed while their configuration runs. A configuration that fails to load changes
// nothing.
func TestRegistry(t *testing.T) {
	c := newControlled(t, "", "sliding_window first {header.X-Key} 5 1h")
	zones := func() (names []string) {
		t.Helper()
		_, text := c.ask(http.MethodGet, "/sliding_window/zones", "", "")
		var answer control.Zones
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		for _, z := range answer.Zones {
			names = append(names, z.Name)
			if z.Store != "memory" || z.Key != "{header.X-Key}" || z.Algorithm != "zset" || z.OnError != "local" ||
				!reflect.DeepEqual(z.Limits, []control.LimitInfo{{Max: "5", Window: "1h"}}) || z.Outcomes["allowed"] > 1000 {
				t.Errorf("zone %+v", z)
			}
		}
		return names
	}
	want := func(what string, want ...string) {
		t.Helper()
		if got := zones(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: zones %q, want %q", what, got, want)
		}
	}
	want("at first", "first")
	if err := c.load("", "sliding_window second {header.X-Key} 5 1h\nsliding_window first {header.X-Key} 5 1h"); err != nil {
		t.Fatal(err)
	}
	want("after a reload", "first", "second")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	if err := c.load("", "sliding_window third {header.X-Key} 5 1h\n}\nhttp://"+taken.Addr().String()+" {\nrespond no"); err == nil {
		t.Error("an address that is taken: no error")
	}
	want("after one that fails", "first", "second")
	if said := c.inspect("second", rand.Text()); !said.Passes() {
		t.Errorf("inspect says %+v", said)
	}
}
