package slidingwindow

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// runHandler has the overrides of a handler hold, until the end of the test.
func runHandler(t testing.TB, h *Handler, storage overridestore.Storage) *overridebook.Book {
	t.Helper()
	var zones []*overridebook.Zone
	for _, z := range h.Zones {
		zones = append(zones, h.newRunningZone(z).InBook)
	}
	b := h.store.Overrides
	b.Begin(zones, storage)
	t.Cleanup(func() { b.End(zones) })
	t.Cleanup(func() { setRecords(t, b) }) // the memory store has one book
	return b
}

// setRecords makes records all that there are. Those without a zone are of the test's.
func setRecords(t testing.TB, b *overridebook.Book, records ...overrides.Record) []overrides.Record {
	t.Helper()
	for i := range records {
		if records[i].Zone == "" {
			records[i].Zone = handlertest.ZoneName(t.(*testing.T))
		}
		if err := records[i].Complete(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	c, err := b.Change(context.Background(), "", func([]overrides.Record) ([]overrides.Record, error) { return records, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c.Records
}

func keyed(key string) overrides.Record { return overrides.Record{Key: &key} }

// passes returns how many of n requests with a key pass.
func passes(t *testing.T, h *Handler, key string, n int) (passed int) {
	t.Helper()
	for range n {
		if handlertest.Serve(t, handlertest.Get("X-Key", key), h).Code == http.StatusNoContent {
			passed++
		}
	}
	return passed
}

const ofKey = `"key":"{http.request.header.X-Key}",`

// Limits of a record take the place of those of the zone, for its key alone; the fields and
// placeholders tell of them.
func TestOverrideLimits(t *testing.T) {
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":2,"window":"1h"}]`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	anna := keyed("anna")
	anna.Limits = []overrides.Limit{{Max: 4, Window: "2h"}}
	records := setRecords(t, b, anna)
	r := handlertest.Get("X-Key", "anna")
	w := handlertest.Serve(t, r, h)
	zone := handlertest.ZoneName(t)
	if got, want := w.Header().Get("RateLimit-Policy"), fmt.Sprintf(`"%s";q=4;w=7200`, zone); got != want {
		t.Errorf("RateLimit-Policy: got %s, want %s", got, want)
	}
	const all = "{http.sliding_window.limit} {http.sliding_window.override} {http.sliding_window.%s.override} {http.sliding_window.%[1]s.source}"
	if got, want := handlertest.Expand(r, fmt.Sprintf(all, zone)), fmt.Sprintf("4 %s %[1]s override", records[0].ID); got != want {
		t.Errorf("placeholders: got %s, want %s", got, want)
	}
	if n := passes(t, h, "anna", 5); n != 3 {
		t.Errorf("anna: %d more passed, want 3", n)
	}
	r = handlertest.Get("X-Key", "otto")
	handlertest.Serve(t, r, h)
	if got := handlertest.Expand(r, fmt.Sprintf(all, zone)); got != "2   config" {
		t.Errorf("placeholders of another key: got %q", got)
	}
	if n := passes(t, h, "otto", 5); n != 1 {
		t.Errorf("otto: %d more passed, want 1", n)
	}
}

// deny answers 429 until the record ends, and exempt lets pass. Neither charges anything: not in this
// zone, and deny in none of the others.
func TestOverrideDenyAndExempt(t *testing.T) {
	zone := handlertest.ZoneName(t)
	h, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":"%s.other","key":"all","limits":[{"max":3,"window":"1h"}]},{"name":%[1]q,%s"limits":[{"max":1,"window":"1h"}]}]}`, zone, ofKey))
	b := runHandler(t, h, new(storagetest.Storage))
	banned, forever, free := keyed("banned"), keyed("forever"), keyed("free")
	banned.Deny, banned.TTL = true, "90s"
	forever.Deny = true
	free.Exempt = true
	setRecords(t, b, banned, forever, free)
	r := handlertest.Get("X-Key", "banned")
	w := handlertest.Serve(t, r, h)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "90" || w.Header().Get("RateLimit") != "" {
		t.Errorf("deny: got %d %v", w.Code, w.Header())
	}
	if got := handlertest.Expand(r, "{http.sliding_window.zone} {http.sliding_window.allowed} {http.sliding_window."+zone+".source} {http.sliding_window."+zone+".enforced}"); got != zone+" false override true" {
		t.Errorf("deny: placeholders: got %s", got)
	}
	w = handlertest.Serve(t, handlertest.Get("X-Key", "forever"), h)
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "denied until further notice") || !strings.Contains(w.Body.String(), zone) {
		t.Errorf("deny without an end: got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if n := passes(t, h, "free", 2); n != 2 {
		t.Errorf("exempt: %d passed, want 2", n)
	}
	r = handlertest.Get("X-Key", "free")
	handlertest.Serve(t, r, h)
	if got := handlertest.Expand(r, "{http.sliding_window."+zone+".source}"); got != "override" {
		t.Errorf("exempt: source %q", got)
	}
	if w := handlertest.Serve(t, handlertest.Get("X-Key", "free"), h); w.Code != http.StatusTooManyRequests {
		t.Errorf("exempt: the other zone does not count: got %d", w.Code)
	}
	alone, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, ""))
	setRecords(t, runHandler(t, alone, new(storagetest.Storage)), free)
	if r := handlertest.Get("X-Key", "free"); passes(t, alone, "free", 3) != 3 || handlertest.Serve(t, r, alone).Code != http.StatusNoContent || handlertest.Expand(r, "{http.sliding_window.override}") == "" {
		t.Errorf("exempt in the only zone: override %q", handlertest.Expand(r, "{http.sliding_window.override}"))
	}
}

// A factor multiplies the limits of the configuration, also those of placeholders.
func TestOverrideFactor(t *testing.T) {
	for name, zone := range map[string]string{
		"static":  `"limits":[{"max":4,"window":"1h"},{"max":6,"window":"2h"}]`,
		"dynamic": `"limits":[{"max":"{http.request.header.X-Max}","window":"1h"}],"fallback":{"max":4,"window":"1h"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandler(t, handlertest.OfZone(t, ofKey+zone, ""))
			b := runHandler(t, h, new(storagetest.Storage))
			double, half := keyed("double"), keyed("half")
			double.Factor, half.Factor = 1.5, 0.5
			setRecords(t, b, double, half)
			for key, want := range map[string]int{"double": 6, "half": 2, "none": 4} {
				if n := passes(t, h, key, 20); n != want {
					t.Errorf("%s: %d passed, want %d", key, n, want)
				}
			}
		})
	}
}

// Whatever limits a record has for a while, the limits of the zone hold when it has gone: with 10 in 1h used up,
// none pass. It is so for a record with a longer window, too.
func TestOverrideKeepsHistory(t *testing.T) {
	address := redistest.Start(t).Addr
	for name, algorithm := range map[string]string{
		"zset": `{"name":"zset"}`, "log": `{"name":"log"}`, "stream": `{"name":"stream"}`, "slices": `{"name":"slices"}`,
		"weighted": `{"name":"slices","weighted":true}`, "layers": `{"name":"slices","layers":{"coarse":"1m","fine":"10s"}}`,
	} {
		for store, raw := range map[string]string{"memory": "", "redis": `,"store":{"module":"redis","address":["` + address + `"],"timeout":"10s"}`} {
			t.Run(name+"."+store, func(t *testing.T) {
				h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":10,"window":"1h"}],"algorithm":`+algorithm, raw))
				b := runHandler(t, h, new(storagetest.Storage))
				if n := passes(t, h, "anna", 12); n != 10 {
					t.Fatalf("%d passed, want 10", n)
				}
				for _, length := range []string{"1m", "30m", "3h"} {
					anna := keyed("anna")
					anna.Limits = []overrides.Limit{{Max: 100, Window: length}}
					setRecords(t, b, anna)
					if n := passes(t, h, "anna", 5); n != 5 {
						t.Errorf("under 100 in %s: %d passed, want 5", length, n)
					}
					setRecords(t, b)
					if n := passes(t, h, "anna", 5); n != 0 {
						t.Errorf("after 100 in %s: %d passed, want 0", length, n)
					}
				}
			})
		}
	}
}

// A record that does not fit the zone is not applied, whatever the zone: its requests meet the limits of the
// configuration, and no error.
func TestOverrideMisfits(t *testing.T) {
	address := redistest.Start(t).Addr
	onRedis := `,"store":{"module":"redis","address":["` + address + `"],"timeout":"10s"}`
	two := []overrides.Limit{{Max: 50, Window: "1m"}, {Max: 60, Window: "1h"}}
	for name, c := range map[string]struct {
		zone   string
		record overrides.Record
		want   string
	}{
		"packed":  {`"limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"slices","count":3},"pack":1000`, overrides.Record{Limits: two}, "limits: pack 1000: 2 limits are too many"},
		"factor":  {`"limits":[{"max":2000000000,"window":"1h"}]`, overrides.Record{Factor: 1000}, "factor: "},
		"dynamic": {`"limits":[{"max":"{http.request.header.X-Max}","window":"1h"}],"fallback":{"max":2000000000,"window":"1h"}`, overrides.Record{Factor: 1000}, ""},
		"layers":  {`"limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"1s"}}`, overrides.Record{Limits: []overrides.Limit{{Max: 5, Window: "1s"}}}, "limits: "},
		"native":  {`"limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"gcra","native":"auto"}`, overrides.Record{Factor: 2}, "limits: CL.THROTTLE may count the zone"},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHandler(t, handlertest.OfZone(t, ofKey+c.zone, onRedis))
			b := runHandler(t, h, new(storagetest.Storage))
			key := "anna"
			c.record.Key = &key
			setRecords(t, b, c.record)
			r := handlertest.Get("X-Key", "anna")
			if w := handlertest.Serve(t, r, h); w.Code != http.StatusNoContent {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if got := handlertest.Expand(r, "{http.sliding_window.override}"); got != "" {
				t.Errorf("override %s is applied", got)
			}
			misfits := h.Zones[0].overrides.Misfits()
			if c.want == "" && len(misfits) == 0 {
				return
			}
			if len(misfits) != 1 || !strings.HasPrefix(misfits[0].Err.Error(), c.want) {
				t.Errorf("got %v, want %s", misfits, c.want)
			}
		})
	}
}

// A key under limits with another window takes no lease, and none does for a while after a change.
func TestOverrideLeases(t *testing.T) {
	f, store := handlertest.NewFake(t, handlertest.Decides(window.Decision{Allowed: true, Limit: 10}))
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":10,"window":"1h"}],"lease":{"units":5}`, `,"store":`+store))
	b := runHandler(t, h, new(storagetest.Storage))
	same, other := keyed("same"), keyed("other")
	same.Limits, other.Limits = []overrides.Limit{{Max: 20, Window: "1h"}}, []overrides.Limit{{Max: 20, Window: "1m"}}
	leases := func(key string) bool {
		handlertest.Serve(t, handlertest.Get("X-Key", key), h)
		return f.Taken()[len(f.Taken())-1][0].Lease.Units > 0
	}
	if !leases("none") {
		t.Error("no lease without overrides")
	}
	setRecords(t, b, same, other)
	for _, key := range []string{"same", "other", "none"} {
		if leases(key) {
			t.Errorf("%s: a lease right after a change", key)
		}
	}
	b.Tidy(time.Now().Add(overridebook.Quiet - time.Second))
	if leases("none") {
		t.Error("a lease before the time is over")
	}
	b.Tidy(time.Now().Add(overridebook.Quiet))
	for key, want := range map[string]bool{"same": true, "other": false, "none": true} {
		if leases(key) != want {
			t.Errorf("%s: lease %v, want %v", key, !want, want)
		}
	}
	setRecords(t, b)
	b.Tidy(time.Now().Add(overridebook.Quiet))
	if z := h.Zones[0].overrides; z.Rule("other") != nil || z.LookBack("other") != 0 || z.Misfits() != nil || !leases("other") {
		t.Error("overrides that have gone leave something behind")
	}
}

// In a shadow zone a record counts as it would if the zone denied.
func TestOverrideInShadow(t *testing.T) {
	h, ctx := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":0,"window":"1h"}],"enforce":"shadow"`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	banned, free, more := keyed("banned"), keyed("free"), keyed("more")
	banned.Deny, free.Exempt, more.Limits = true, true, []overrides.Limit{{Max: 5, Window: "1h"}}
	setRecords(t, b, banned, free, more)
	outcome := func(outcome string) float64 {
		return metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", handlertest.ZoneName(t), "outcome", outcome)
	}
	for i, key := range []string{"banned", "free", "more", "none"} {
		if n := passes(t, h, key, 1); n != 1 {
			t.Errorf("%s: the zone denies", key)
		}
		want := [][2]float64{{0, 1}, {0, 1}, {1, 1}, {1, 2}}[i]
		handlertest.Poll(t, key, func() bool { return outcome("shadow_allowed") == want[0] && outcome("shadow_denied") == want[1] })
	}
}

// With hash_keys no key is kept: the record holds its HMAC, and is found under each secret.
func TestOverrideHashed(t *testing.T) {
	address := redistest.Start(t).Addr
	store := func(secrets string) string {
		return `,"store":{"module":"redis","address":["` + address + `"],"timeout":"10s","hash_keys":[` + secrets + `]}`
	}
	const oldSecret, newSecret = `"a former secret of 16 bytes"`, `"a new secret of 16 bytes"`
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, store(newSecret+","+oldSecret)))
	runHandler(t, h, new(storagetest.Storage))
	own := []*running.Zone{h.newRunningZone(h.Zones[0])}
	running.Zones.Add(own)
	defer running.Zones.Remove(own)
	var answer control.OverrideChange
	text := handlertest.Admin(t, http.MethodPost, "overrides/set", `{"zone":"`+handlertest.ZoneName(t)+`","key":"anna","deny":true}`)
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(text)
	}
	if record := answer.Records[0]; record.Key != nil || len(record.Hashes) != 2 {
		t.Fatalf("got %+v", record)
	}
	for _, secrets := range []string{oldSecret, newSecret, newSecret + "," + oldSecret} {
		other, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}]`, store(secrets)))
		runHandler(t, other, new(storagetest.Storage)).Look(t.Context())
		if w := handlertest.Serve(t, handlertest.Get("X-Key", "anna"), other); w.Code != http.StatusTooManyRequests {
			t.Errorf("%s: got %d", secrets, w.Code)
		}
		if w := handlertest.Serve(t, handlertest.Get("X-Key", "otto"+secrets), other); w.Code != http.StatusNoContent {
			t.Errorf("%s: another key: got %d", secrets, w.Code)
		}
	}
}

// A request whose key has no override allocates nothing more, however many overrides there are.
func TestOverridesWithoutAHitAllocateNothing(t *testing.T) {
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":1000000,"window":"1h"}]`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	client := newClient(1)
	client.request.Header.Set("X-Key", "k3y")
	send := func() {
		if err := client.send(h); err != nil {
			t.Fatal(err)
		}
	}
	before := testing.AllocsPerRun(1000, send)
	records := make([]overrides.Record, overrides.MaxRecords)
	for i := range records {
		records[i] = overrides.Record{Pattern: fmt.Sprintf("customer-%d*", i), Deny: true}
	}
	setRecords(t, b, records...)
	if after := testing.AllocsPerRun(1000, send); after > before {
		t.Errorf("%v allocations, and %v without overrides", after, before)
	}
}

// A record may have more limits than the zone, or others, with every algorithm: no request fails.
func TestOverrideFailsNoRequest(t *testing.T) {
	address := redistest.Start(t).Addr
	for name, algorithm := range map[string]string{
		"zset": `{"name":"zset"}`, "gcra": `{"name":"gcra"}`, "burst": `{"name":"gcra","burst":2}`, "packed": `{"name":"gcra"},"pack":1000`,
		"adaptive": `{"name":"slices","adaptive":{"min":"1s","max":"1m"}}`, "sized": `{"name":"slices","size":"1m"}`,
	} {
		for store, raw := range map[string]string{"memory": "", "redis": `,"store":{"module":"redis","address":["` + address + `"],"timeout":"10s"}`} {
			t.Run(name+"."+store, func(t *testing.T) {
				h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":3,"window":"1h"}],"algorithm":`+algorithm, raw))
				b := runHandler(t, h, new(storagetest.Storage))
				for _, limits := range [][]overrides.Limit{{{Max: 50, Window: "1m"}, {Max: 60, Window: "2h"}}, {{Max: 1, Window: "1ms"}}, {{Max: 0, Window: "24h"}}, nil} {
					if anna := keyed("anna"); limits == nil {
						setRecords(t, b)
					} else {
						anna.Limits = limits
						setRecords(t, b, anna)
					}
					for range 3 {
						if w := handlertest.Serve(t, handlertest.Get("X-Key", "anna"), h); w.Code != http.StatusNoContent && w.Code != http.StatusTooManyRequests {
							t.Errorf("%v: got %d %s", limits, w.Code, w.Body)
						}
					}
				}
			})
		}
	}
}

// CL.THROTTLE keeps limits itself, and only servers have it: in memory, limits hold with gcra, too.
func TestOverrideGCRAInMemory(t *testing.T) {
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":3,"window":"24h"}],"algorithm":{"name":"gcra","burst":3}`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	anna, otto := keyed("anna"), keyed("otto")
	anna.Limits, otto.Factor = []overrides.Limit{{Max: 4, Window: "24h"}, {Max: 100, Window: "48h"}}, 0.5
	setRecords(t, b, anna, otto)
	for _, key := range []string{"anna", "otto", "none"} {
		r := handlertest.Get("X-Key", key)
		if w := handlertest.Serve(t, r, h); w.Code != http.StatusNoContent {
			t.Errorf("%s: got %d", key, w.Code)
		}
		want := map[string]string{"anna": "override", "otto": "override", "none": "config"}[key]
		if got := handlertest.Expand(r, "{http.sliding_window."+handlertest.ZoneName(t)+".source}"); got != want {
			t.Errorf("%s: source %s, want %s", key, got, want)
		}
	}
	if n := passes(t, h, "anna", 5); n != 2 {
		t.Errorf("anna: %d more passed, want 2: the burst of the zone", n)
	}
}

// A key is stored so that it stays the same key when the record is read again. A key of which the
// placeholder is no part is refused.
func TestOverrideOfAPart(t *testing.T) {
	h, _ := newHandler(t, handlertest.OfZone(t, `"key":"{http.request.host.labels.2}","limits":[{"max":1,"window":"1h"}]`, ""))
	runHandler(t, h, new(storagetest.Storage))
	own := []*running.Zone{h.newRunningZone(h.Zones[0])}
	running.Zones.Add(own)
	defer running.Zones.Remove(own)
	zone := `{"zone":"` + handlertest.ZoneName(t) + `","deny":true,"until":"2099-01-01T00:00:00Z",`
	if answer := handlertest.Admin(t, http.MethodPost, "overrides/set", zone+`"key":"evil"}`); !strings.HasPrefix(answer, "key: ") {
		t.Errorf("a text without a third label is taken as a key: %s", answer)
	}
	if answer := handlertest.Admin(t, http.MethodPost, "overrides/set", zone+`"key":"evil.example.com"}`); !strings.Contains(answer, `"version"`) {
		t.Fatal(answer)
	}
	if h.Zones[0].overrides.Rule("evil") == nil || h.Zones[0].overrides.Rule("") != nil {
		t.Errorf("the record decides on evil: %v, on no key: %v", h.Zones[0].overrides.Rule("evil") != nil, h.Zones[0].overrides.Rule("") != nil)
	}
}

// The case of a path counts, also in a pattern; that of a host does not.
func TestOverridePatternCase(t *testing.T) {
	for key, want := range map[string]string{"{http.request.uri.path}": "/API/x", "{http.request.host}": "/api/x"} {
		h, _ := newHandler(t, handlertest.OfZone(t, `"key":"`+key+`","limits":[{"max":1,"window":"1h"}]`, ""))
		b := runHandler(t, h, new(storagetest.Storage))
		setRecords(t, b, overrides.Record{Pattern: "/API/*", Deny: true})
		for _, path := range []string{"/API/x", "/api/x"} {
			if got := h.Zones[0].overrides.Rule(path) != nil; got != (path == want) {
				t.Errorf("%s: the pattern decides on %s: %v", key, path, got)
			}
		}
	}
}
