package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

const walked = `vars tenant acme
map {path} {allowance} {
	/api/v1/gold 5
	default 3
}
sliding_window everything {client_ip} 1000 1h
handle_path /api/* {
	@named header X-Key *
	sliding_window @named {
		zone inner {
			match {
				path /v1/*
			}
			key {path}
			limit 4 1h
		}
		zone tenant {
			key {vars.tenant}/{header.X-Key}
			limit {allowance} 1h
			fallback 2 1h
			cost {query.cost}
		}
	}
	respond inner
}
handle /named/* {
	invoke limited
	respond named
}
handle /empty/* {
	sliding_window {
		zone nameless {
			key {header.X-Key}
			empty_key deny
			limit 3 1h
		}
	}
	respond ok
}
handle /wrong/* {
	error 418
}
handle {
	route {
		uri strip_prefix /late
		request_header X-Key "of {path}"
		sliding_window late {header.X-Key} 3 1h
		respond ok
	}
}
handle_errors {
	sliding_window errors {err.status_code} 1000 1h
	respond {err.status_code}
}`

// inspectRequest inspects a request.
func (c *controlled) inspectRequest(path string, headers map[string]string) (said control.RequestInspection) {
	c.Helper()
	c.post("inspect", map[string]any{"request": map[string]any{"uri": "http://" + c.site + path, "remote": "127.0.0.1", "headers": headers}}, http.StatusOK, &said)
	return said
}

// outcomes returns how many decisions each zone has made.
func (c *controlled) outcomes() map[string]int64 {
	c.Helper()
	_, text := c.ask(http.MethodGet, "/sliding_window/zones", "", "")
	var answer control.Zones
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		c.Fatal(err)
	}
	all := make(map[string]int64)
	for _, z := range answer.Zones {
		all[z.Name] = z.Outcomes["allowed"] + z.Outcomes["denied"]
	}
	return all
}

// send sends a request, and returns its status.
func (c *controlled) send(path string, headers map[string]string) int {
	c.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+c.site+path, nil)
	if err != nil {
		c.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// What is said of a request is what it meets: the same zones, keys, limits and costs, through map,
// vars, handle_path, named routes and error routes. Nothing is spent.
func TestInspectRequest(t *testing.T) {
	for name, store := range map[string]string{
		"memory": "",
		"redis":  "sliding_window {\nstore redis redis://" + redistest.Start(t).Addr + "\n}\n",
	} {
		t.Run(name, func(t *testing.T) { testInspectRequest(t, store) })
	}
}

func testInspectRequest(t *testing.T, store string) {
	c := newControlled(t, store+"}\n&(limited) {\nsliding_window shared {header.X-Key} 3 1h\n", walked)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	paths := []string{"/api/v1/gold?cost=2", "/api/v1/other", "/api/v2/x?cost=0", "/named/a", "/empty/a", "/wrong/a", "/late/a", "/late//a", "/", "/x%20y"}
	verdicts, zones := make(map[bool]int), make(map[string]int)
	for i := range 80 {
		path, headers := paths[random.IntN(len(paths))], map[string]string{}
		if key := random.IntN(3); key > 0 {
			headers["X-Key"] = fmt.Sprint("client ", key)
		}
		said := c.inspectRequest(path, headers)
		if said.Unknown != nil || said.NotRun != nil || said.WouldPass == nil {
			t.Fatalf("%s: %+v", path, said)
		}
		before := c.outcomes()
		status := c.send(path, headers)
		after := c.outcomes()
		var met, want []string
		for _, name := range slices.Sorted(maps.Keys(after)) {
			if after[name] != before[name] {
				met = append(met, name)
			}
		}
		denies := make(map[string]bool)
		for _, z := range said.Zones {
			denies[z.Zone] = z.EmptyKey != "" || !z.Passes()
		}
		for _, z := range said.Zones { // of the zones of a handler, only those that deny count a denial
			if denies[z.Zone] || !denies[map[string]string{"inner": "tenant", "tenant": "inner"}[z.Zone]] {
				want = append(want, z.Zone)
			}
			zones[z.Zone]++
		}
		slices.Sort(want)
		if !slices.Equal(met, want) || (status == 429) == *said.WouldPass {
			t.Errorf("request %d, %s %v: inspect says %+v; status %d in zones %q, want %q", i, path, headers, said, status, met, want)
		}
		verdicts[*said.WouldPass]++
		again := c.inspectRequest(path, headers)
		if !*said.WouldPass || !*again.WouldPass {
			continue
		}
		for j, z := range said.Zones {
			if got := again.Zones[j]; got.Key != z.Key || *got.Cost != *z.Cost || got.Limits[0].Used != z.Limits[0].Used+*z.Cost || got.Limits[0].Max != z.Limits[0].Max {
				t.Errorf("request %d, %s: %+v before and %+v after it", i, path, z, got)
			}
		}
	}
	if verdicts[true] < 20 || verdicts[false] < 20 || len(zones) != 7 {
		t.Errorf("verdicts %v in zones %v", verdicts, zones)
	}
}

// What was not run is named, and so is what a zone needs of it.
func TestInspectRequestUnknown(t *testing.T) {
	restoresOrder(t)
	c := newControlled(t, "order sliding_window after forward_auth", `handle /basic/* {
	basic_auth {
		Bob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
	}
	sliding_window users {http.auth.user.id} 3 1h
	respond ok
}
handle /forward/* {
	forward_auth localhost:1 {
		uri /auth
		copy_headers Remote-User
	}
	sliding_window forwarded {header.Remote-User} 3 1h
	respond ok
}
handle /proto/* {
	sliding_window protocols {http.request.proto} 3 1h
	respond ok
}
sliding_window known {client_ip} 3 1h`)
	for path, want := range map[string][3]string{
		"/basic/a":   {"users", "{http.auth.user.id}", "authentication"},
		"/forward/a": {"forwarded", "{header.Remote-User}", "reverse_proxy"},
		"/proto/a":   {"protocols", "{http.request.proto}", ""},
	} {
		said := c.inspectRequest(path, nil)
		var got [3]string
		for _, z := range said.Zones {
			if z.Unknown != nil {
				got[0], got[1] = z.Zone, strings.Join(z.Unknown, " ")
			}
		}
		got[2] = strings.Join(said.NotRun, " ")
		if got != want || said.WouldPass != nil || len(said.Zones) != 2 {
			t.Errorf("%s: got %q, %+v, want %q", path, got, said, want)
		}
	}
	for body, want := range map[string]string{
		`{"request":{"uri":"http://localhost:1/carmen","remote":"::1"}}`:                 "404 request.uri: no server listens on the port",
		`{"request":{"uri":"http://localhost/carmen","remote":"::1","server":"carmen"}}`: "404 request.server: no server of this name runs",
		`{"request":{"uri":"/carmen","remote":"::1"}}`:                                   "400 request.uri: must begin with http://",
		`{"request":{"uri":"http://` + c.site + `/carmen","remote":"carmen"}}`:           "400 request.remote: not an IP address",
		`{"request":{"uri":"http://localhost/","remote":"::1","server":"srv0"}}`:         `200 "zones":[]`,
		`{"request":{"uri":"http://` + c.site + `/","remote":"::1"},"zone":"known"}`:     "400 request: cannot be combined",
	} {
		status, text := c.ask(http.MethodPost, "/sliding_window/inspect", "application/json", body)
		if code, part, _ := strings.Cut(want, " "); fmt.Sprint(status) != code || !strings.Contains(text, part) || strings.Contains(text, "carmen") {
			t.Errorf("%s: got %d %s, want %s", body, status, text, want)
		}
	}
	if status, text := c.ask(http.MethodPost, "/sliding_window/reset", "application/json", `{"request":{"uri":"http://a/","remote":"::1"}}`); status != 400 || !strings.Contains(text, "request: only inspect takes one") {
		t.Errorf("a reset of a request: %d %s", status, text)
	}
}

// A zone in shadow, or one that marks, does not deny, so that a request goes on where the zone would deny it.
func TestInspectRequestShadow(t *testing.T) {
	for _, word := range []string{"shadow", "mark"} {
		t.Run(word, func(t *testing.T) { testInspectShadow(t, word) })
	}
}

func testInspectShadow(t *testing.T, word string) {
	watched := "watched_" + word
	c := newControlled(t, "", `
route {
	sliding_window {
		zone `+watched+` {
			key all
			limit 1 1h
			enforce `+word+`
		}
		zone nameless {
			key {header.X-Key}
			limit 1 1h
			empty_key deny
			enforce shadow
		}
	}
	sliding_window later {client_ip} 5 1h
	respond ok
}`)
	for range 2 {
		c.send("/", nil)
	}
	caddyrun.Eventually(t, 20*time.Second, "the zone that denies nothing is full", func() bool { return shadowDenied(c, watched) })
	said := c.inspectRequest("/", nil)
	if len(said.Zones) != 3 || said.WouldPass == nil || !*said.WouldPass {
		t.Fatalf("%+v, want three zones, and that it passes", said)
	}
	for i, want := range []control.EvaluatedZone{{Zone: "nameless", Shadow: true, EmptyKey: "deny"}, {Zone: watched, Shadow: true}, {Zone: "later"}} {
		got := said.Zones[i]
		if got.Zone != want.Zone || got.Shadow != want.Shadow || got.EmptyKey != want.EmptyKey || got.Zone == watched && got.Passes() {
			t.Errorf("zone %d: %+v, want %+v", i, got, want)
		}
	}
	inspect := func() (i control.Inspection) {
		c.post("inspect", map[string]any{"zone": watched}, http.StatusOK, &i)
		return i
	}
	if key := inspect(); key.Passes() || key.Enforce != word {
		t.Errorf("by key: %+v, want one that would be denied", key)
	}
	if status, body := c.ask(http.MethodPost, "/sliding_window/reset", "application/json", `{"zone":"`+watched+`"}`); status != http.StatusOK {
		t.Errorf("reset: %d %s", status, body)
	}
	if key := inspect(); !key.Passes() {
		t.Errorf("after a reset: %+v, want one that would pass", key)
	}
	if status := c.send("/", nil); status != http.StatusOK {
		t.Errorf("the request: %d, want 200", status)
	}
}

// shadowDenied reports whether a zone would have denied a request.
func shadowDenied(c *controlled, zone string) bool {
	_, text := c.ask(http.MethodGet, "/metrics", "", "")
	return strings.Contains(text, `caddy_sliding_window_decisions_total{outcome="shadow_denied",zone="`+zone+`"} 1`)
}
