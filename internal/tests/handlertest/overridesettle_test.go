package handlertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// tokens asks for max_tokens in zones with settle.
type tokens struct {
	h     caddyhttp.MiddlewareHandler
	store *openstore.SharedStore
	zones []string
}

// used returns the units that count in those of the zones in which no override decides on the key.
func (a *tokens) used(t *testing.T, key string) (all []int64) {
	t.Helper()
	for _, zone := range a.zones {
		for _, limit := range inspect(t, zone, key).Limits {
			all = append(all, limit.Used)
		}
	}
	return all
}

// ask serves a request that reserves max_tokens. It returns the status, how many receipts were open while it was
// answered, and the units that its key had used by then, and after.
func (a *tokens) ask(t *testing.T, key string, most int, cost string) (status int, open int64, during, after []int64) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(fmt.Sprintf(`{"max_tokens":%d}`, most)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Key", key)
	w := httptest.NewRecorder()
	err := AnswerWith(a.h, w, r, func(w http.ResponseWriter, _ *http.Request) error {
		during, open = a.used(t, key), a.store.Unsettled()
		w.Header().Set("X-Units", cost)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	a.store.Settler.Drain(openstore.DrainLast)
	return w.Code, open, during, a.used(t, key)
}

// In a zone with settle, a record's limits cap what a request reserves, and hold for what it really costs. A key that
// is exempt gets no receipt, and one that is denied is charged nothing, in this zone and in others.
func TestOverrideSettle(t *testing.T) {
	address := redistest.Start(t).Addr
	for module, options := range map[string]string{"memory": "", "redis": `"address":["` + address + `"],"timeout":"10s"`} {
		t.Run(module, func(t *testing.T) {
			zone, raw := ZoneName(t), `{"module":"`+module+`"}`
			if options != "" {
				raw = `{"module":"` + module + `",` + options + `}`
			}
			h, ctx := operated(t, fmt.Sprintf(`{"zones":[{"name":%[1]q,%[2]s"limits":[{"max":100,"window":"1h"}],"settle":{"header":"X-Units","reserve_json":["max_tokens"]}},
				{"name":"%[1]s.other",%[2]s"limits":[{"max":1000,"window":"1h"}]}],"store":%[3]s}`, zone, ofKey, raw))
			store := openstore.Acquire(storeOf(t, ctx, module, "{"+options+"}"), nil, false)
			defer store.Release(false)
			a := &tokens{h, store, []string{zone, zone + ".other"}}
			more := overridestest.Limited("more", overrides.RecordLimit{Max: 500, Window: "1h"})
			setRecords(t, more, overridestest.Limited("less", overrides.RecordLimit{Max: 20, Window: "2h"}), overridestest.Multiplied("half", 0.5), overridestest.Exempt("free"), overridestest.Denied("banned"))
			for _, c := range []struct {
				key           string
				status        int
				open          int64
				during, after []int64
			}{
				{"none", 200, 1, []int64{100, 1}, []int64{7, 1}},
				{"more", 200, 1, []int64{400, 1}, []int64{7, 1}},
				{"less", 200, 1, []int64{20, 1}, []int64{7, 1}},
				{"half", 200, 1, []int64{50, 1}, []int64{7, 1}},
				{"free", 200, 0, []int64{1}, []int64{1}},
				{"banned", 429, 0, nil, []int64{0}},
			} {
				status, open, during, after := a.ask(t, c.key, 400, "7")
				if status != c.status || open != c.open || !slices.Equal(during, c.during) || !slices.Equal(after, c.after) {
					t.Errorf("%s: got %d, %d open, %v, then %v, want %d, %d open, %v, then %v", c.key, status, open, during, after, c.status, c.open, c.during, c.after)
				}
			}
			if n := store.Unsettled(); n != 0 {
				t.Errorf("%d receipts are open", n)
			}
			settled := Metric(t, ctx, "caddy_sliding_window_settled_units_total", "zone", zone, "direction", "kept")
			if settled != 4*7 {
				t.Errorf("%v units are settled, want 28", settled)
			}
			setRecords(t)
			if got := a.used(t, "banned"); !slices.Equal(got, []int64{0, 0}) {
				t.Errorf("banned: charged %v", got)
			}
			if got := a.used(t, "free"); !slices.Equal(got, []int64{0, 1}) {
				t.Errorf("free: charged %v", got)
			}

			// What an answer costs above the record's limit denies under it, and under the zone's.
			setRecords(t, more)
			a.ask(t, "more", 400, "493")
			if status, _, _, _ := a.ask(t, "more", 1, "1"); status != http.StatusTooManyRequests {
				t.Errorf("more: got %d above 500", status)
			}
			setRecords(t)
			if status, _, _, _ := a.ask(t, "more", 1, "1"); status != http.StatusTooManyRequests {
				t.Errorf("more: got %d above 100", status)
			}
		})
	}
}

// In a zone with count_if, requests whose answers do not count cost nothing under a record, either, and those that
// count use up its limits.
func TestOverrideCountIf(t *testing.T) {
	h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}`, ""))
	setRecords(t, overridestest.Limited("more", overrides.RecordLimit{Max: 3, Window: "1h"}), overridestest.Exempt("free"), overridestest.Denied("banned"))
	for _, c := range []struct {
		key    string
		status int
		passed int // of five
	}{{"none", 401, 1}, {"none 200", 200, 5}, {"more", 200, 5}, {"more", 401, 3}, {"free", 401, 5}, {"banned", 200, 0}} {
		passed := 0
		for range 5 {
			w := httptest.NewRecorder()
			next := func(w http.ResponseWriter, _ *http.Request) error {
				w.WriteHeader(c.status)
				return nil
			}
			if err := AnswerWith(h, w, Get("X-Key", c.key), next); err != nil {
				t.Error(err)
			}
			if w.Code == c.status {
				passed++
			}
		}
		if passed != c.passed {
			t.Errorf("%s: %d of 5 with %d passed, want %d", c.key, passed, c.status, c.passed)
		}
	}
}

// keyOf returns a key that a zone enforces at a percentage, or one that it does not.
func keyOf(zone string, percent int64, enforced bool) string {
	for n := 0; ; n++ {
		if key := fmt.Sprint("key-", n); enforce.IsEnforced(zone, key, percent) == enforced {
			return key
		}
	}
}

// A zone that enforces a percentage of its keys denies by a record only those, and counts what it would deny of the others.
func TestOverrideOfAPercentage(t *testing.T) {
	zone := ZoneName(t)
	h, ctx := operated(t, OfZone(t, ofKey+`"limits":[{"max":5,"window":"1h"}],"enforce":"50%"`, ""))
	in, out := keyOf(zone, 50, true), keyOf(zone, 50, false)
	for name, c := range map[string]struct {
		record overrides.Record
		passed int // of four requests that the zone may deny
	}{
		"limits": {overrides.Record{Limits: []overrides.RecordLimit{{Max: 2, Window: "1h"}}}, 2},
		"factor": {overrides.Record{Factor: 0.6}, 3},
		"deny":   {overrides.Record{Deny: true}, 0},
		"exempt": {overrides.Record{Exempt: true}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var records []overrides.Record
			for _, key := range []string{in, out} {
				r := c.record
				r.Key, r.Zone = &key, zone
				records = append(records, r)
			}
			setRecords(t, records...)
			for _, key := range []string{in, out} {
				if answer := told[control.Reset](t, http.MethodPost, "reset", fmt.Sprintf(`{"zone":%q,"key":%q}`, zone, key)); !answer.Done {
					t.Fatalf("%s: the counter stays", key)
				}
			}
			shadowed := func() float64 {
				n := shadowOutcomes(t, ctx, zone)
				return n[0] + n[1]
			}
			before := shadowed()
			if n := passes(t, h, in, 4); n != c.passed {
				t.Errorf("enforced: %d passed, want %d", n, c.passed)
			}
			if n := passes(t, h, out, 4); n != 4 {
				t.Errorf("not enforced: %d passed, want 4", n)
			}
			want := before + 4
			if c.record.Exempt {
				want = before
			}
			Poll(t, "shadow", func() bool { return shadowed() == want })
		})
	}
}

// The field with the cost comes off the answer also where nothing is charged: under an exemption, and
// while the store is away.
func TestStripWithoutCharge(t *testing.T) {
	f, store := NewFake(t, Decides(window.Decision{Allowed: true, Limit: 100}))
	h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":100,"window":"1h"}],"settle":{"header":"X-Units","strip":true}`, `,"on_error":"allow","store":`+store))
	setRecords(t, overridestest.Exempt("free"))
	next := func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Units", "7")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	for _, key := range []string{"free", "paying", "away"} {
		if key == "away" {
			f.Become(Away)
		}
		w := httptest.NewRecorder()
		if err := AnswerWith(h, w, Get("X-Key", key), next); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("X-Units"); got != "" || w.Code != http.StatusOK {
			t.Errorf("%s: the client gets %d and sees X-Units %q", key, w.Code, got)
		}
	}
	if n := len(f.Taken()); n != 2 {
		t.Errorf("the store was asked %d times, want twice", n)
	}
}
