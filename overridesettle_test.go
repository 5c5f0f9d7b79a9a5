package slidingwindow

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridestore/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

// tokensUnder serves a request that reserves max_tokens, and returns the status and the units that its
// key has used while it was answered, and after.
func tokensUnder(t *testing.T, h *Handler, key string, most int, next http.HandlerFunc) (status int, during, after []int64) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(fmt.Sprintf(`{"max_tokens":%d}`, most)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Key", key)
	w := httptest.NewRecorder()
	err := handlertest.AnswerWith(h, w, r, func(w http.ResponseWriter, r *http.Request) error {
		during = spent(t, h, "X-Key", key)
		next(w, r)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	h.store.Settler.Drain(openstore.DrainLast)
	return w.Code, during, spent(t, h, "X-Key", key)
}

// In a zone with settle, a record's limits cap what a request reserves, and hold for what it really costs. A key that
// is exempt gets no receipt, and one that is denied is charged nothing, in this zone and in others.
func TestOverrideSettle(t *testing.T) {
	address := redistest.Start(t).Addr
	cost := func(units string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Units", units) }
	}
	for store, raw := range map[string]string{"memory": "", "redis": `,"store":{"module":"redis","address":["` + address + `"],"timeout":"10s"}`} {
		t.Run(store, func(t *testing.T) {
			zone := handlertest.ZoneName(t)
			h, ctx := newHandler(t, fmt.Sprintf(`{"zones":[{"name":%[1]q,%[2]s"limits":[{"max":100,"window":"1h"}],"settle":{"header":"X-Units","reserve_json":["max_tokens"]}},
				{"name":"%[1]s.other",%[2]s"limits":[{"max":1000,"window":"1h"}]}]%[3]s}`, zone, ofKey, raw))
			b := runHandler(t, h, new(storagetest.Storage))
			more, less, half, free, banned := keyed("more"), keyed("less"), keyed("half"), keyed("free"), keyed("banned")
			more.Limits, less.Limits = []overrides.Limit{{Max: 500, Window: "1h"}}, []overrides.Limit{{Max: 20, Window: "2h"}}
			half.Factor, free.Exempt, banned.Deny = 0.5, true, true
			setRecords(t, b, more, less, half, free, banned)
			for _, c := range []struct {
				key           string
				status        int
				during, after []int64
			}{
				{"none", 200, []int64{100, 1}, []int64{7, 1}},
				{"more", 200, []int64{400, 1}, []int64{7, 1}},
				{"less", 200, []int64{20, 1}, []int64{7, 1}},
				{"half", 200, []int64{50, 1}, []int64{7, 1}},
				{"free", 200, []int64{1}, []int64{1}},
				{"banned", 429, nil, nil},
			} {
				status, during, after := tokensUnder(t, h, c.key, 400, cost("7"))
				if status != c.status || !slices.Equal(during, c.during) || !slices.Equal(after, c.after) {
					t.Errorf("%s: got %d, %v, then %v, want %d, %v, then %v", c.key, status, during, after, c.status, c.during, c.after)
				}
			}
			if n := h.store.Unsettled(); n != 0 {
				t.Errorf("%d receipts are open", n)
			}
			settled := metric(t, ctx, "caddy_sliding_window_settled_units_total", "zone", zone, "direction", "kept")
			if settled != 4*7 {
				t.Errorf("%v units are settled, want 28", settled)
			}
			setRecords(t, b)
			if got := spent(t, h, "X-Key", "banned"); !slices.Equal(got, []int64{0, 0}) {
				t.Errorf("banned: charged %v", got)
			}
			if got := spent(t, h, "X-Key", "free"); !slices.Equal(got, []int64{0, 1}) {
				t.Errorf("free: charged %v", got)
			}

			// What an answer costs above the record's limit denies under it, and under the zone's.
			setRecords(t, b, more)
			tokensUnder(t, h, "more", 400, cost("493"))
			if status, _, _ := tokensUnder(t, h, "more", 1, cost("1")); status != http.StatusTooManyRequests {
				t.Errorf("more: got %d above 500", status)
			}
			setRecords(t, b)
			if status, _, _ := tokensUnder(t, h, "more", 1, cost("1")); status != http.StatusTooManyRequests {
				t.Errorf("more: got %d above 100", status)
			}
		})
	}
}

// In a zone with count_if, requests whose answers do not count cost nothing under a record, either, and those that
// count use up its limits.
func TestOverrideCountIf(t *testing.T) {
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	more, free, banned := keyed("more"), keyed("free"), keyed("banned")
	more.Limits, free.Exempt, banned.Deny = []overrides.Limit{{Max: 3, Window: "1h"}}, true, true
	setRecords(t, b, more, free, banned)
	for _, c := range []struct {
		key    string
		status int
		passed int // of five
	}{{"none", 401, 1}, {"none 200", 200, 5}, {"more", 200, 5}, {"more", 401, 3}, {"free", 401, 5}, {"banned", 200, 0}} {
		passed := 0
		for range 5 {
			w := httptest.NewRecorder()
			if err := handlertest.AnswerWith(h, w, handlertest.Get("X-Key", c.key), answers(c.status, "")); err != nil {
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
	h, ctx := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":5,"window":"1h"}],"enforce":"50%"`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	in, out := keyOf(handlertest.ZoneName(t), 50, true), keyOf(handlertest.ZoneName(t), 50, false)
	for name, c := range map[string]struct {
		record overrides.Record
		passed int // of four requests that the zone may deny
	}{
		"limits": {overrides.Record{Limits: []overrides.Limit{{Max: 2, Window: "1h"}}}, 2},
		"factor": {overrides.Record{Factor: 0.6}, 3},
		"deny":   {overrides.Record{Deny: true}, 0},
		"exempt": {overrides.Record{Exempt: true}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			var records []overrides.Record
			for _, key := range []string{in, out} {
				r := c.record
				r.Key, r.Zone = &key, h.Zones[0].Name
				records = append(records, r)
			}
			setRecords(t, b, records...)
			for _, key := range []string{in, out} {
				z := h.Zones[0]
				charge, _ := z.chargeUnder(key, nil)
				if err := h.store.Raw.Reset(t.Context(), charge); err != nil {
					t.Fatal(err)
				}
			}
			shadowed := func() float64 {
				zone := h.Zones[0].Name
				return metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", zone, "outcome", "shadow_denied") +
					metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", zone, "outcome", "shadow_allowed")
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
			handlertest.Poll(t, "shadow", func() bool { return shadowed() == want })
		})
	}
}

// The field with the cost comes off the answer also where nothing is charged: under an exemption, and
// while the store is away.
func TestStripWithoutCharge(t *testing.T) {
	h, _ := newHandler(t, handlertest.OfZone(t, ofKey+`"limits":[{"max":100,"window":"1h"}],"settle":{"header":"X-Units","strip":true}`, ""))
	b := runHandler(t, h, new(storagetest.Storage))
	free := keyed("free")
	free.Exempt = true
	setRecords(t, b, free)
	next := func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Units", "7")
		w.WriteHeader(http.StatusOK)
		return nil
	}
	for _, key := range []string{"free", "paying"} {
		w := httptest.NewRecorder()
		if err := handlertest.AnswerWith(h, w, handlertest.Get("X-Key", key), next); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("X-Units"); got != "" {
			t.Errorf("%s: the client sees X-Units %s", key, got)
		}
	}
}

func limited(key, window string) overrides.Record {
	r := keyed(key)
	r.Limits = []overrides.Limit{{Max: 10, Window: window}}
	return r
}

// looksBack returns how far back charges of a key of the only zone look.
func looksBack(h *Handler, key string) time.Duration {
	c, _ := h.Zones[0].chargeUnder(key, nil)
	return time.Duration(window.Longest(&c)) * time.Millisecond
}

// endedAgo has the only zone know a record that ended some time ago, as a Caddy does that starts now.
func endedAgo(t *testing.T, h *Handler, r overrides.Record, ago time.Duration) {
	t.Helper()
	storage := new(storagetest.Storage)
	b := overridebook.New(h.store.Raw)
	b.Begin(nil, storage)
	defer b.End(nil)
	over := time.Now().Add(-ago)
	r.Until = &over
	if _, err := b.Change(t.Context(), "", func([]overrides.Record) ([]overrides.Record, error) { return []overrides.Record{r}, nil }); err != nil {
		t.Fatal(err)
	}
	overridebook.New(h.store.Raw).Foresee(h.newRunningZone(h.Zones[0]).InBook, storage)
}

// An override of an hour ends, and its key has limits of a minute for a while. What it uses then still counts when
// the override is set again, until an hour after its end, with each algorithm and on both stores. Units have to
// be kept for that long that no window needs at the time.
func TestEndedOverrideIsLookedBackOn(t *testing.T) {
	server := redistest.Start(t)
	for name, open := range map[string]func(*windowtest.Clock) window.Store{
		"memory": func(c *windowtest.Clock) window.Store {
			return memory.New(memory.Options{SweepInterval: -1, Now: c.Now})
		},
		"redis": func(c *windowtest.Clock) window.Store {
			return redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, Now: c.Now})
		},
	} {
		for _, algorithm := range []string{"zset", "log", "stream", "slices"} {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				h, _ := newHandler(t, handlertest.OfZone(t, ofKey+fmt.Sprintf(`"limits":[{"max":100,"window":"1m"}],"algorithm":{"name":%q}`, algorithm), ""))
				b := runHandler(t, h, new(storagetest.Storage))
				clock := windowtest.NewClock()
				store := open(clock)
				defer func() { _ = store.(interface{ Close() error }).Close() }()
				take := func(units int) (left int64) {
					t.Helper()
					for range units {
						c, _ := h.Zones[0].chargeUnder("anna", nil)
						ds, err := store.Take(t.Context(), []window.Charge{c})
						if err != nil || !window.Allowed(ds) {
							t.Fatalf("%v, %v", ds, err)
						}
						left = ds[0].Remaining
					}
					return left
				}
				record := setRecords(t, b, limited("anna", "1h"))[0]
				if left := take(1); left != 9 {
					t.Errorf("%d are left in the hour, want 9", left)
				}
				clock.Add(50 * 60_000)
				setRecords(t, b) // it ends 50 minutes after its only request
				end := clock.Now()
				clock.Add(60_000)
				if left := take(5); left != 95 {
					t.Errorf("%d are left in the minute, want 95", left)
				}
				for _, minutes := range []int64{10, 9} {
					clock.Add(minutes * 60_000)
					endedAgo(t, h, record, time.Duration(clock.Now()-end)*time.Millisecond)
					if anna, otto := looksBack(h, "anna"), looksBack(h, "otto"); anna != time.Hour || otto != time.Minute {
						t.Errorf("anna looks back %s, otto %s; want an hour and a minute", anna, otto)
					}
					take(1)
				}
				endedAgo(t, h, record, 61*time.Minute)
				if back := looksBack(h, "anna"); back != time.Minute {
					t.Errorf("anna looks back %s an hour after the end, want a minute", back)
				}
				setRecords(t, b, limited("anna", "1h")) // 70 minutes after its only request
				if left := take(1); left != 10-5-2-1 {
					t.Errorf("%d are left in the hour, want 2: 5 and 2 were used while the override was not there", left)
				}
			})
		}
	}
}
