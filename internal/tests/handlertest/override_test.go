package handlertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// ofKey makes a zone count requests by a header field.
const ofKey = `"key":"{http.request.header.X-Key}",`

// operated is New for a handler whose app has started, so that operators can set overrides, until the end of the test.
func operated(t testing.TB, config string) (caddyhttp.MiddlewareHandler, caddy.Context) {
	t.Helper()
	h, ctx := New(t, config)
	Start(t, ctx)
	t.Cleanup(func() { Admin(t, http.MethodPost, "overrides/replace", `{"records":[]}`) })
	return h, ctx
}

// setRecords makes records all that the store of the zones has which run. Those without a zone are of the test's.
func setRecords(t testing.TB, records ...overrides.Record) []overrides.Record {
	t.Helper()
	records = append([]overrides.Record{}, records...)
	for i := range records {
		if records[i].Zone == "" {
			records[i].Zone = ZoneName(t)
		}
	}
	body, err := json.Marshal(control.OverrideSet{Records: records})
	if err != nil {
		t.Fatal(err)
	}
	return told[control.OverrideChange](t, http.MethodPost, "overrides/replace", string(body)).Records
}

// passes returns how many of n requests with a key pass.
func passes(t *testing.T, h caddyhttp.MiddlewareHandler, key string, n int) (passed int) {
	t.Helper()
	for range n {
		if Serve(t, Get("X-Key", key), h).Code == http.StatusNoContent {
			passed++
		}
	}
	return passed
}

// Limits of a record take the place of those of the zone, for its key alone; the fields and
// placeholders show them.
func TestOverrideLimits(t *testing.T) {
	h, _ := operated(t, OfZone(t, ofKey+TwoAnHour, ""))
	records := setRecords(t, overridestest.Limited("anna", overrides.RecordLimit{Max: 4, Window: "2h"}))
	r := Get("X-Key", "anna")
	w := Serve(t, r, h)
	zone := ZoneName(t)
	if got, want := w.Header().Get("RateLimit-Policy"), fmt.Sprintf(`"%s";q=4;w=7200`, zone); got != want {
		t.Errorf("RateLimit-Policy: got %s, want %s", got, want)
	}
	const all = "{http.sliding_window.limit} {http.sliding_window.override} {http.sliding_window.%s.override} {http.sliding_window.%[1]s.source}"
	if got, want := Expand(r, fmt.Sprintf(all, zone)), fmt.Sprintf("4 %s %[1]s override", records[0].ID); got != want {
		t.Errorf("placeholders: got %s, want %s", got, want)
	}
	if n := passes(t, h, "anna", 5); n != 3 {
		t.Errorf("anna: %d more passed, want 3", n)
	}
	r = Get("X-Key", "otto")
	Serve(t, r, h)
	if got := Expand(r, fmt.Sprintf(all, zone)); got != "2   config" {
		t.Errorf("placeholders of another key: got %q", got)
	}
	if n := passes(t, h, "otto", 5); n != 1 {
		t.Errorf("otto: %d more passed, want 1", n)
	}
}

// deny answers 429 until the record ends, and exempt lets pass. Neither charges anything: not in this
// zone, and deny in none of the others.
func TestOverrideDenyAndExempt(t *testing.T) {
	zone := ZoneName(t)
	h, _ := operated(t, fmt.Sprintf(`{"zones":[{"name":"%s.other","key":"all","limits":[{"max":3,"window":"1h"}]},{"name":%[1]q,%s"limits":[{"max":1,"window":"1h"}]}]}`, zone, ofKey))
	banned, free := overridestest.Denied("banned"), overridestest.Exempt("free")
	banned.TTL = "90s"
	setRecords(t, banned, overridestest.Denied("forever"), free)
	r := Get("X-Key", "banned")
	w := Serve(t, r, h)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "90" || w.Header().Get("RateLimit") != "" {
		t.Errorf("deny: got %d %v", w.Code, w.Header())
	}
	if got := Expand(r, "{http.sliding_window.zone} {http.sliding_window.allowed} {http.sliding_window."+zone+".source} {http.sliding_window."+zone+".enforced}"); got != zone+" false override true" {
		t.Errorf("deny: placeholders: got %s", got)
	}
	w = Serve(t, Get("X-Key", "forever"), h)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "denied until further notice") || !strings.Contains(w.Body.String(), zone) {
		t.Errorf("deny without an end: got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if n := passes(t, h, "free", 2); n != 2 {
		t.Errorf("exempt: %d passed, want 2", n)
	}
	r = Get("X-Key", "free")
	Serve(t, r, h)
	if got := Expand(r, "{http.sliding_window."+zone+".source}"); got != "override" {
		t.Errorf("exempt: source %q", got)
	}
	if w := Serve(t, Get("X-Key", "free"), h); w.Code != http.StatusTooManyRequests {
		t.Errorf("exempt: the other zone does not count: got %d", w.Code)
	}
	alone, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, ""))
	setRecords(t, free)
	if r := Get("X-Key", "free"); passes(t, alone, "free", 3) != 3 || Serve(t, r, alone).Code != http.StatusNoContent || Expand(r, "{http.sliding_window.override}") == "" {
		t.Errorf("exempt in the only zone: override %q", Expand(r, "{http.sliding_window.override}"))
	}
}

// A factor multiplies the limits of the configuration, also those of placeholders.
func TestOverrideFactor(t *testing.T) {
	for name, zone := range map[string]string{
		"static":  `"limits":[{"max":4,"window":"1h"},{"max":6,"window":"2h"}]`,
		"dynamic": `"limits":[{"max":"{http.request.header.X-Max}","window":"1h"}],"fallback":{"max":4,"window":"1h"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := operated(t, OfZone(t, ofKey+zone, ""))
			setRecords(t, overridestest.Multiplied("double", 1.5), overridestest.Multiplied("half", 0.5))
			for key, want := range map[string]int{"double": 6, "half": 2, "none": 4} {
				if n := passes(t, h, key, 20); n != want {
					t.Errorf("%s: %d passed, want %d", key, n, want)
				}
			}
		})
	}
}

// In a shadow zone a record counts as it would if the zone denied.
func TestOverrideInShadow(t *testing.T) {
	h, ctx := operated(t, OfZone(t, ofKey+`"limits":[{"max":0,"window":"1h"}],"enforce":"shadow"`, ""))
	setRecords(t, overridestest.Denied("banned"), overridestest.Exempt("free"), overridestest.Limited("more", overrides.RecordLimit{Max: 5, Window: "1h"}))
	for i, key := range []string{"banned", "free", "more", "none"} {
		if n := passes(t, h, key, 1); n != 1 {
			t.Errorf("%s: the zone denies", key)
		}
		wantShadow(t, ctx, ZoneName(t), [][5]float64{{0, 1}, {0, 1}, {1, 1}, {1, 2}}[i])
	}
}

// With hash_keys no key is kept: the record holds its HMAC, and is found under each secret.
func TestOverrideHashed(t *testing.T) {
	address := redistest.Start(t).Addr
	config := func(secrets string) string {
		return OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, `,"store":{"module":"redis","address":["`+address+`"],"timeout":"10s","hash_keys":[`+secrets+`]}`)
	}
	const oldSecret, newSecret = `"a former secret of 16 bytes"`, `"a new secret of 16 bytes"`
	_, ctx := New(t, config(newSecret+","+oldSecret))
	stop := Start(t, ctx)
	set := told[control.OverrideChange](t, http.MethodPost, "overrides/set", `{"zone":"`+ZoneName(t)+`","key":"anna","deny":true,"ttl":"1h"}`)
	if record := set.Records[0]; record.Key != nil || len(record.Hashes) != 2 {
		t.Fatalf("got %+v", record)
	}
	stop()
	for _, secrets := range []string{oldSecret, newSecret, newSecret + "," + oldSecret} {
		other, ctx := New(t, config(secrets))
		Start(t, ctx)
		if w := Serve(t, Get("X-Key", "anna"), other); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: got %d", secrets, w.Code)
		}
		if w := Serve(t, Get("X-Key", "otto"+secrets), other); w.Code != http.StatusNoContent {
			t.Errorf("%s: another key: got %d", secrets, w.Code)
		}
	}
}

// A key is stored so that it stays the same key when the record is read again. A key of which the
// placeholder is no part is refused.
func TestOverrideOfAPart(t *testing.T) {
	h, _ := operated(t, OfZone(t, `"key":"{http.request.host.labels.2}",`+TwoAnHour, ""))
	set := func(key string) string {
		return Admin(t, http.MethodPost, "overrides/set", `{"zone":"`+ZoneName(t)+`","deny":true,"until":"2099-01-01T00:00:00Z","key":"`+key+`"}`)
	}
	if got := set("evil"); !strings.HasPrefix(got, "key: is empty as the zone counts it") {
		t.Errorf("a text without a third label is taken as a key: %s", got)
	}
	if got := set("evil.example.com"); !strings.HasPrefix(got, "{") {
		t.Fatal(got)
	}
	for host, want := range map[string]int{"evil.example.com": 429, "evil.example.net": 429, "good.example.com": 204, "example.com": 204} {
		r := Get()
		r.Host = host
		if w := Serve(t, r, h); w.Code != want {
			t.Errorf("%s: got %d, want %d", host, w.Code, want)
		}
	}
}

// The case of a path counts, also in a pattern; that of a host does not.
func TestOverridePatternCase(t *testing.T) {
	for name, c := range map[string]struct {
		key, pattern string
		denied       []string
		passed       []string
	}{
		"path": {"{http.request.uri.path}", "/API/*", []string{"/API/x"}, []string{"/api/x"}},
		"host": {"{http.request.host}", "API.*", []string{"API.x", "api.x"}, []string{"www.x"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := operated(t, OfZone(t, `"key":"`+c.key+`",`+TwoAnHour, ""))
			setRecords(t, overrides.Record{Pattern: c.pattern, Deny: true})
			for _, value := range slices.Concat(c.denied, c.passed) {
				r := Get()
				r.URL.Path, r.Host = value, value
				if got := Serve(t, r, h).Code == http.StatusTooManyRequests; got != slices.Contains(c.denied, value) {
					t.Errorf("the pattern decides on %s: %v", value, got)
				}
			}
		})
	}
}
