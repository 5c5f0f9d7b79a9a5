package handlertest

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// markedZones are zones of a handler, in JSON; PREFIX and ENFORCE are replaced.
const markedZones = `
	{"name":"PREFIX_pair","key":"{http.request.header.X-Key}","empty_key":"deny","cost":"{http.request.header.X-Cost}",
		"match":[{"not":[{"path":["/free"]}]}],"limits":[{"max":20,"window":"10s"},{"max":200,"window":"5m"}],"enforce":"ENFORCE"},
	{"name":"PREFIX_gcra","key":"{http.request.header.X-Key}","limits":[{"max":450,"window":"10m"}],"algorithm":{"name":"gcra","burst":30},"enforce":"ENFORCE"},
	{"name":"PREFIX_log","key":"{http.request.uri.path}","limits":[{"max":190,"window":"1m"}],"algorithm":{"name":"log"},"enforce":"ENFORCE"},
	{"name":"PREFIX_tiers","limits":[{"max":45,"window":"1m"},{"max":205,"window":"1m","tier":"24/48"}],"enforce":"ENFORCE"},
	{"name":"PREFIX_failed","key":"{http.request.header.X-Key}","limits":[{"max":7,"window":"1m"}],"count_if":{"status_code":[401]},"enforce":"ENFORCE"},
	{"name":"PREFIX_units","key":"all","limits":[{"max":5200,"window":"1m"}],"settle":{"header":"X-Units","strip":true},"cost":5,"enforce":"ENFORCE"}`

var markedNames = []string{"pair", "gcra", "log", "tiers", "failed", "units"}

// compareMarks sends the same traffic to a handler whose zones are on and to one whose zones mark, and compares what each
// zone decides, by its placeholders; if that is not exact, of denied requests only that they are. It returns how many requests each zone denied, and how often no zone did.
func compareMarks(t *testing.T, zones, store, fields string, exact bool, n int, step func(*mathrand.Rand)) (denied map[string]int, passed int) {
	t.Helper()
	handler := func(prefix, enforce string) caddyhttp.MiddlewareHandler {
		zones := strings.NewReplacer("PREFIX", ZoneName(t)+prefix, "ENFORCE", enforce).Replace(zones)
		h, ctx := New(t, `{"zones":[`+zones+`],`+store+`}`)
		Start(t, ctx)
		for _, name := range markedNames[:2] {
			for key, effect := range map[string]string{"k1": `"factor":0.5`, "k2": `"deny":true`, "k3": `"exempt":true`} {
				record := fmt.Sprintf(`{"zone":%q,"key":%q,%s}`, ZoneName(t)+prefix+"_"+name, key, effect)
				if answer := Admin(t, http.MethodPost, "overrides/set", record); !strings.Contains(answer, `"id"`) {
					t.Fatal(answer)
				}
			}
		}
		return h
	}
	on, mark := handler("_on", "on"), handler("_mark", "mark")
	random := mathrand.New(mathrand.NewPCG(1, 2))
	denied = make(map[string]int)
	for i := range n {
		step(random)
		key, cost, path := "", "1", "/"+strconv.Itoa(random.IntN(3))
		if random.IntN(50) > 0 {
			key = "k" + strconv.Itoa(random.IntN(12))
		}
		if random.IntN(10) == 0 {
			cost = strconv.Itoa(random.IntN(5))
		}
		if random.IntN(20) == 0 {
			path = "/free"
		}
		status, units := http.StatusOK, strconv.Itoa(random.IntN(20))
		if random.IntN(10) == 0 {
			status = http.StatusUnauthorized
		}
		address := fmt.Sprintf("192.0.%d.%d:1", random.IntN(3), random.IntN(6))
		ask := func(h caddyhttp.MiddlewareHandler, prefix string) (w *httptest.ResponseRecorder, decided string) {
			r := Get("X-Key", key, "X-Cost", cost)
			r.URL.Path, r.RemoteAddr = path, address
			w = httptest.NewRecorder()
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
			if err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("X-Units", units)
				w.WriteHeader(status)
				return nil
			})); err != nil {
				t.Fatal(err)
			}
			for _, name := range markedNames {
				decided += Expand(r, strings.ReplaceAll(fields, "ZONE", "{http.sliding_window."+ZoneName(t)+prefix+"_"+name))
			}
			return w, decided
		}
		was, want := ask(on, "_on")
		got, said := ask(mark, "_mark")
		var deny []string
		same := true
		of, marks := strings.Split(want, ";"), strings.Split(said, ";")
		for i, name := range markedNames {
			if strings.HasPrefix(marks[i], "false") {
				deny = append(deny, name)
			}
			// Without a limit that was looked at, a zone that is on says nothing of itself.
			same = same && (of[i] == marks[i] || strings.HasPrefix(of[i], " ") && (marks[i] == "false"+of[i] || marks[i] == "true"+of[i]))
		}
		if got.Code != status || got.Header().Get("Retry-After")+got.Header().Get("RateLimit")+got.Header().Get("RateLimit-Policy")+got.Header().Get("X-Units") != "" {
			t.Fatalf("request %d: a mark answers %d with %v", i, got.Code, got.Header())
		}
		if isExempt := key == "k3"; isExempt != strings.HasPrefix(marks[1], "true  ") {
			t.Fatalf("request %d by %s, which is exempt in the second zone if it is k3: the marks are\n%s", i, key, said)
		}
		if isDenied := was.Code == http.StatusTooManyRequests; isDenied != (deny != nil) || !same && (exact || !isDenied) {
			t.Fatalf("request %d by %s for %s: on answers %d, with\n%s, and the marks are\n%s", i, key, path, was.Code, want, said)
		}
		if deny == nil {
			passed++
		}
		for _, name := range deny {
			denied[name]++
		}
	}
	return denied, passed
}

// 10^5 requests on a set clock: zones that mark decide on each as zones that are on, field for field, and deny none. Answers
// settle what was reserved.
func TestMarkDecidesAsOn(t *testing.T) {
	now := int64(1_700_000_000_000)
	store := memory.New(memory.Options{SweepInterval: -1, Now: func() int64 { return now }})
	t.Cleanup(func() { _ = store.Close() })
	denied, passed := compareMarks(t, markedZones, `"store":`+Give(t, store), "ZONE.allowed} ZONE.limit} ZONE.remaining} ZONE.retry_after} ZONE.reset_after} ZONE.source};", true, 100_000, func(random *mathrand.Rand) {
		if random.IntN(3) == 0 {
			now += int64(random.IntN(400))
		}
		if random.IntN(1000) == 0 {
			now += int64(random.IntN(60_000))
		}
	})
	for _, name := range markedNames {
		if denied[name] < 200 || passed < 50_000 {
			t.Errorf("zone %s denied %d requests, and %d passed, which proves nothing", name, denied[name], passed)
		}
	}
}

// The same on Redis, whose clock cannot be set, and where units come back beside the requests: windows are so long that no others
// come free. Of a request that one zone is remembered to deny, Redis is not asked what the others have left.
func TestMarkDecidesAsOnRedis(t *testing.T) {
	zones := regexp.MustCompile(`"window":"(\w+)[ms]"`).ReplaceAllString(markedZones, `"window":"${1}h"`)
	store := `"store":{"module":"redis","timeout":"10s","url":"redis://` + redistest.Start(t).Addr + `"}`
	denied, passed := compareMarks(t, zones, store, "ZONE.allowed} ZONE.limit} ZONE.source};", false, 5000, func(*mathrand.Rand) {})
	if denied["pair"] < 100 || denied["gcra"] < 100 || passed < 100 {
		t.Errorf("zones denied %v, and %d requests passed, which proves nothing", denied, passed)
	}
}

// A zone that marks is charged after the others and by itself, and only for requests that they let pass. Clients hear nothing of
// it. A zone of a later handler sees what it has decided.
func TestMarkBesideOthers(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		name := rand.Text() // the metrics of a name go on when the test runs again
		h, ctx := New(t, fmt.Sprintf(`{"zones":[
			{"name":"%[1]s_first","limits":[{"max":1,"window":"1h"}],"enforce":"mark"},
			{"name":"%[1]s_on","key":"{http.request.header.X-Key}","limits":[{"max":2,"window":"1h"}]},
			{"name":"%[1]s_second","limits":[{"max":3,"window":"1h"}],"enforce":"mark"},
			{"name":"%[1]s_shadow","limits":[{"max":100,"window":"1h"}],"enforce":"shadow"}],%[2]s}`, name, store))
		later, err := Another(ctx, fmt.Sprintf(`{"zones":[
			{"name":"%[1]s_slow","match":[{"vars":{"{http.sliding_window.%[1]s_first.allowed}":["false"]}}],"limits":[{"max":2,"window":"1h"}]}],%[2]s}`, name, store))
		if err != nil {
			t.Fatal(err)
		}
		const fields = "FIRST.allowed} FIRST.remaining} SECOND.allowed} SECOND.remaining} SECOND.enforced} ON.enforced} SHADOW.enforced} {http.sliding_window.allowed} {http.sliding_window.zone}"
		of := func(zone string) string { return "{http.sliding_window." + name + "_" + zone }
		look := strings.NewReplacer("FIRST", of("first"), "SECOND", of("second"), "ON", of("on"), "SHADOW", of("shadow"))
		for i, want := range []struct {
			key    string
			status int
			said   string
		}{
			{"a", 204, "true 0 true 2 false true false true on"},
			{"a", 204, "false 0 true 2 false true false true slow"},
			{"a", 429, "    " + "  " + "false on"}, // the marks do not see it
			{"b", 204, "false 0 true 2 false true false true slow"},
			{"c", 429, "false 0 true 2 false true false false slow"},
		} {
			r := Get("X-Key", want.key)
			w := Serve(t, r, h, later)
			said := strings.ReplaceAll(Expand(r, look.Replace(fields)), name+"_", "")
			if w.Code != want.status || want.status != 429 && said != want.said {
				t.Errorf("request %d: got %d, %q, want %d, %q", i+1, w.Code, said, want.status, want.said)
			}
			if policy := w.Header().Get("RateLimit-Policy"); strings.Contains(policy, "_first") || strings.Contains(policy, "_second") {
				t.Errorf("request %d: RateLimit-Policy is %s", i+1, policy)
			}
		}
		for zone, want := range map[string][2]float64{"first": {1, 3}, "second": {1, 0}} {
			if got := shadowOutcomes(t, ctx, name+"_"+zone); got != [5]float64{want[0], want[1]} {
				t.Errorf("zone %s: outcomes %v, want %v", zone, got, want)
			}
			if got := Outcomes(t, ctx, name+"_"+zone, [4]float64{}); got != [4]float64{} {
				t.Errorf("zone %s denies and allows %v", zone, got)
			}
		}
		wantShadow(t, ctx, name+"_shadow", [5]float64{4})
	})
}

// While the store is away on_error decides on a mark, too. A matcher that fails and an empty key say false.
func TestMarkWithoutADecision(t *testing.T) {
	for i, c := range []struct {
		more, onError, want string
		outcomes            [5]float64 // of shadowOutcomes
	}{
		{"", "local", "true config;true config;false config", [5]float64{2, 1}},
		{"", "allow", "true away;true away;true away", [5]float64{0, 0, 3}},
		{"", "deny", "false away;false away;false away", [5]float64{0, 0, 0, 3}},
		{`,"key":"{http.request.header.X-None}","empty_key":"deny"`, "allow", "false config;false config;false config", [5]float64{0, 3}},
		{`,"key":"{http.request.header.X-None}","empty_key":"skip"`, "allow", " ; ; ", [5]float64{}},
		{`,"match":[{"expression":"int({http.request.header.X-None}) == 1"}]`, "allow", "false config;false config;false config", [5]float64{0, 0, 0, 3}},
	} {
		_, store := NewFake(t, Away)
		name := rand.Text() + strconv.Itoa(i)
		h, ctx := New(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":2,"window":"1h"}],"enforce":"mark"%s}],"on_error":%q,"store":%s}`, name, c.more, c.onError, store))
		var said []string
		for range 3 {
			r := Get()
			if w := Serve(t, r, h); w.Code != 204 || len(w.Header()) > 0 {
				t.Errorf("%s%s: got %d, %v", c.onError, c.more, w.Code, w.Header())
			}
			said = append(said, Expand(r, "{http.sliding_window."+name+".allowed} {http.sliding_window."+name+".source}"))
		}
		if got := strings.Join(said, ";"); got != c.want {
			t.Errorf("%s%s: got %s, want %s", c.onError, c.more, got, c.want)
		}
		if got := shadowOutcomes(t, ctx, name); got != c.outcomes {
			t.Errorf("%s%s: outcomes %v, want %v", c.onError, c.more, got, c.outcomes)
		}
	}
}

// An operator has a zone mark for a while, also one with count_if, and the counts go on. inspect looks at them.
func TestSetMark(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		h, ctx := New(t, OfZone(t, `"limits":[{"max":2,"window":"1h"}],"count_if":{"status_code":[204]}`, ","+store))
		Start(t, ctx)
		want := func(what string, status int, allowed string) {
			t.Helper()
			r := Get()
			if w := Serve(t, r, h); w.Code != status || Expand(r, "{http.sliding_window."+ZoneName(t)+".allowed}") != allowed {
				t.Errorf("%s: got %d, %s, want %d, %s", what, w.Code, Expand(r, "{http.sliding_window."+ZoneName(t)+".allowed}"), status, allowed)
			}
		}
		inspect := func() string {
			i := told[control.Inspection](t, http.MethodPost, "inspect", `{"zone":"`+ZoneName(t)+`","key":"192.0.2.1"}`)
			return fmt.Sprint(i.Enforce, i.Limits[0].Used)
		}
		want("on", 204, "true")
		for _, mode := range []string{"mark", "mark"} {
			if answer := setEnforce(t, ZoneName(t), mode, "1h"); !strings.Contains(answer, `"enforce":"mark"`) {
				t.Fatal(answer)
			}
		}
		want("mark, room left", 204, "true")
		want("mark, none left", 204, "false")
		if got := inspect(); got != "mark2" {
			t.Errorf("inspect says %s", got)
		}
		if answer := setEnforce(t, ZoneName(t), "config", ""); !strings.Contains(answer, `"enforce":"on"`) {
			t.Fatal(answer)
		}
		want("on again", 429, "false")
	})
}

// Leases and pack work as with on: units are handed out without asking Redis, and no more than the limit.
func TestMarkLeases(t *testing.T) {
	server := redistest.Start(t)
	for _, options := range []string{`"lease":{"units":20}`, `"algorithm":{"name":"gcra","burst":200},"pack":1000`} {
		name := rand.Text()
		h, ctx := New(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":200,"window":"100h"}],%s,"enforce":"mark"}],"store":{"module":"redis","timeout":"10s","url":"redis://%s"}}`, name, options, server.Addr))
		calls := func() (n int64) {
			info := server.Client(t).InfoMap(t.Context(), "commandstats").Val()["Commandstats"]
			for command, stats := range info {
				if strings.HasPrefix(command, "cmdstat_evalsha") {
					_, _ = fmt.Sscanf(stats, "calls=%d", &n)
				}
			}
			return n
		}
		before := calls()
		allowed := 0
		for range 300 {
			r := Get()
			if w := Serve(t, r, h); w.Code != http.StatusNoContent {
				t.Fatalf("%s: %d", options, w.Code)
			}
			if Expand(r, "{http.sliding_window."+name+".allowed}") == "true" {
				allowed++
			}
		}
		if allowed != 200 || shadowOutcomes(t, ctx, name) != [5]float64{200, 100} {
			t.Errorf("%s: %d requests were let pass, %v", options, allowed, shadowOutcomes(t, ctx, name))
		}
		if n := calls() - before; n > 150 && strings.Contains(options, "lease") {
			t.Errorf("%s: Redis was asked %d times", options, n)
		}
	}
}
