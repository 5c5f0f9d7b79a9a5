package handlertest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	goredis "github.com/redis/go-redis/v9"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// shadowOutcomes returns what a zone would have decided: allowed, denied, failed_open, failed_closed
// and dropped.
func shadowOutcomes(t *testing.T, ctx caddy.Context, zone string) (n [5]float64) {
	t.Helper()
	for i, outcome := range []string{"shadow_allowed", "shadow_denied", "shadow_failed_open", "shadow_failed_closed", "shadow_dropped"} {
		n[i] = Metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", zone, "outcome", outcome)
	}
	return n
}

// wantShadow waits until a zone would have decided so.
func wantShadow(t *testing.T, ctx caddy.Context, zone string, want [5]float64) {
	t.Helper()
	var got [5]float64
	defer func() {
		if got != want {
			t.Errorf("zone %s: allowed, denied, failed_open, failed_closed and dropped in shadow are %v, want %v", zone, got, want)
		}
	}()
	Poll(t, fmt.Sprintf("zone %s has %v", zone, want), func() bool {
		got = shadowOutcomes(t, ctx, zone)
		return got[0]+got[1]+got[2]+got[3]+got[4] == want[0]+want[1]+want[2]+want[3]+want[4]
	})
}

// eachStore runs a test with the member of a handler that configures a store.
func eachStore(t *testing.T, run func(t *testing.T, store string)) {
	t.Run("memory", func(t *testing.T) { run(t, `"store":{"module":"memory"}`) })
	t.Run("redis", func(t *testing.T) {
		run(t, `"store":{"module":"redis","timeout":"10s","url":"redis://`+redistest.Start(t).Addr+`"}`)
	})
}

// For the same traffic a shadow zone counts as denied what the zone denies that is on, where the
// other zones let everything pass.
func TestShadowCountsWhatOnDenies(t *testing.T) {
	algorithms := []string{
		`{"name":"zset"}`, `{"name":"log"}`, `{"name":"slices"}`, `{"name":"slices","weighted":true}`, `{"name":"stream"}`,
		`{"name":"gcra"}`, `{"name":"slices","layers":{"coarse":"10m","fine":"1m"}}`,
	}
	options := map[string]string{
		`{"name":"zset"}`: `,"lease":{"units":5}`,
		`{"name":"gcra"}`: `,"pack":1000`,
	}
	eachStore(t, func(t *testing.T, store string) {
		for i, algorithm := range algorithms {
			zone := func(name, enforce string) string {
				return fmt.Sprintf(`{"name":%q,"key":"{http.request.header.X-Key}","empty_key":"deny","cost":"{http.request.header.X-Cost}",
					"match":[{"not":[{"path":["/free"]}]}],"limits":[{"max":20,"window":"10h"},{"max":15,"window":"5h"}],"algorithm":%s,"enforce":%q%s}`,
					name, algorithm, enforce, options[algorithm])
			}
			name := ZoneName(t) + strconv.Itoa(i)
			roomy := `{"name":"` + name + `_roomy","limits":[{"max":100000,"window":"10h"}]}`
			on, ctx := New(t, `{"zones":[`+roomy+`,`+zone(name+"_on", "on")+`],`+store+`}`)
			shadow, _ := New(t, `{"zones":[`+zone(name+"_shadow", "shadow")+`,`+roomy+`],`+store+`}`)
			random := rand.New(rand.NewPCG(1, 2))
			var want [5]float64
			for range 400 {
				cost, key, path := "1", "", "/"
				if random.IntN(10) == 0 {
					cost = strconv.Itoa(random.IntN(5))
				}
				if random.IntN(20) > 0 {
					key = "k" + strconv.Itoa(random.IntN(12))
				}
				if random.IntN(20) == 0 {
					path = "/free"
				}
				ask := func(h caddyhttp.MiddlewareHandler) int {
					r := Get("X-Key", key, "X-Cost", cost)
					r.URL.Path = path
					return Serve(t, r, h).Code
				}
				switch status := ask(on); {
				case status == 429:
					want[1]++
				case path != "/free":
					want[0]++
				}
				if status := ask(shadow); status != 204 {
					t.Fatalf("%s: a shadow zone denies: %d", algorithm, status)
				}
			}
			if want[1] < 50 || want[0] < 50 {
				t.Fatalf("%s: %v prove nothing", algorithm, want)
			}
			wantShadow(t, ctx, name+"_shadow", want)
		}
	})
}

// A handler asks its store the same, and clients get the same, with shadow zones as without.
func TestShadowChangesNothing(t *testing.T) {
	const (
		first  = `{"name":"same_lease","key":"{http.request.header.X-Key}","limits":[{"max":3,"window":"1h"}],"lease":{"units":2}}`
		native = `{"name":"same_native","key":"{http.request.header.X-Key}","limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"gcra","native":"on"}}`
		shadow = `{"name":"same_shadow","key":"{http.request.header.X-Key}","match":[{"path_regexp":{"name":"seen","pattern":"(.*)"}}],
			"limits":[{"max":1,"window":"1h"}],"enforce":"shadow"}`
		empty = `{"name":"same_empty","key":"{http.request.header.X-None}","empty_key":"deny","limits":[{"max":1,"window":"1h"}],"enforce":"shadow"}`
	)
	for name, enforced := range map[string]string{"lease": first, "native": native, "both": first + "," + strings.Replace(native, `"on"`, `"auto"`, 1)} {
		t.Run(name, func(t *testing.T) {
			run := func(zones string) (answers []string, taken [][]window.Charge) {
				f, store := NewFake(t, nil)
				left := 3
				f.Become(func(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
					left--
					ds := make([]window.Decision, engine.CountPolicies(charges))
					for i := range ds {
						ds[i] = window.Decision{Allowed: left >= 0, Limit: 3, Remaining: int64(max(0, left)), RetryAfter: time.Second, ResetAfter: time.Hour, EffectiveWindow: time.Hour}
					}
					return ds, nil
				})
				h, _ := New(t, `{"zones":[`+zones+`],"store":`+store+`}`)
				for range 5 {
					r := Get("X-Key", "k")
					w := Serve(t, r, h)
					answers = append(answers, fmt.Sprint(w.Code, w.Header(), w.Body,
						Expand(r, "{http.sliding_window.zone} {http.sliding_window.remaining} {http.regexp.seen.1}")))
				}
				return answers, f.Taken()
			}
			answers, taken := run(enforced)
			for _, zones := range []string{shadow + "," + enforced, enforced + "," + shadow, empty + "," + enforced + "," + shadow} {
				a, c := run(zones)
				if !reflect.DeepEqual(a, answers) {
					t.Errorf("%s:\nanswers\n%q\nwithout shadow zones\n%q", zones, a, answers)
				}
				if !reflect.DeepEqual(c, taken) {
					t.Errorf("%s:\nthe store is asked\n%v\nwithout shadow zones\n%v", zones, c, taken)
				}
			}
		})
	}
}

// The keys of enforced zones in Redis, and the fields of answers, are the same with a shadow zone as without.
func TestShadowLeavesRedisAlone(t *testing.T) {
	const zones = `{"name":"kept_a","key":"{http.request.header.X-Key}","limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"log"}},
		{"name":"kept_b","key":"all","limits":[{"max":9,"window":"1h"}],"algorithm":{"name":"gcra"}}`
	const shadow = `{"name":"kept_shadow","key":"{http.request.header.X-Key}","limits":[{"max":1,"window":"1h"}],"enforce":"shadow"}`
	run := func(zones string) (answers []string, types map[string]string) {
		server := redistest.Start(t)
		h, ctx := New(t, `{"zones":[`+zones+`],"store":{"module":"redis","timeout":"10s","url":"redis://`+server.Addr+`"}}`)
		for i := range 40 {
			w := Serve(t, Get("X-Key", "k"+strconv.Itoa(i%4)), h)
			answers = append(answers, fmt.Sprint(w.Code, w.Header()["Ratelimit-Policy"], strings.Split(w.Header().Get("Ratelimit"), ";t=")[0]))
		}
		if strings.Contains(zones, "shadow") {
			Poll(t, "the shadow zone has decided", func() bool {
				n := shadowOutcomes(t, ctx, "kept_shadow")
				return n[0] == 4 && n[1] == 5 && n[4] == 0
			})
		}
		client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
		t.Cleanup(func() { _ = client.Close() })
		types = make(map[string]string) // not encodings: those of short strings depend on what scripts called before
		for _, key := range client.Keys(t.Context(), "*").Val() {
			if !strings.Contains(key, "kept_shadow") {
				types[key] = client.Type(t.Context(), key).Val()
			}
		}
		return answers, types
	}
	answers, types := run(zones)
	a, s := run(shadow + "," + zones)
	if !reflect.DeepEqual(a, answers) {
		t.Errorf("answers\n%q\nwithout the shadow zone\n%q", a, answers)
	}
	if !maps.Equal(s, types) || len(types) < 5 {
		t.Errorf("keys %v, without the shadow zone %v", s, types)
	}
}

// What a zone would refuse for another reason than its limit passes, too.
func TestShadowCoversRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		zone string
		away bool
		more string
		want [5]float64
	}{
		"empty_key_deny": {zone: `"key":"{http.request.header.X-Key}","empty_key":"deny",` + TwoAnHour, want: [5]float64{0, 1, 0, 0, 0}},
		"empty_key_skip": {zone: `"key":"{http.request.header.X-Key}","empty_key":"skip",` + TwoAnHour},
		"matcher":        {zone: `"match":[{"expression":"int({http.request.header.X-N}) > 0"}],` + TwoAnHour, want: [5]float64{0, 0, 0, 1, 0}},
		"on_error_deny":  {zone: TwoAnHour, away: true, more: `,"on_error":"deny"`, want: [5]float64{0, 0, 0, 1, 0}},
		"on_error_allow": {zone: TwoAnHour, away: true, more: `,"on_error":"allow"`, want: [5]float64{0, 0, 1, 0, 0}},
		"on_error_local": {zone: TwoAnHour, away: true, more: `,"on_error":"local"`, want: [5]float64{1, 0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			decide := Decides(window.Decision{Allowed: true, Limit: 2})
			if c.away {
				decide = Away
			}
			_, store := NewFake(t, decide)
			h, ctx := New(t, OfZone(t, c.zone+`,"enforce":"shadow"`, c.more+`,"store":`+store))
			r := Get()
			if w := Serve(t, r, h); w.Code != 204 || len(w.Header()) > 0 {
				t.Errorf("got %d %v, want 204 and no field", w.Code, w.Header())
			}
			wantShadow(t, ctx, ZoneName(t), c.want)
			if name == "empty_key_deny" {
				if got := Expand(r, strings.ReplaceAll("{http.sliding_window.Z.enforced} {http.sliding_window.Z.allowed}", "Z", ZoneName(t))); got != "false false" {
					t.Errorf("enforced and allowed are %q", got)
				}
			}
		})
	}
}

// While the store is away, local counts decide on requests in shadow as they would otherwise, and
// limits are divided with share.
func TestShadowWhileAway(t *testing.T) {
	f, store := NewFake(t, Away)
	h, ctx := New(t, OfZone(t, `"limits":[{"max":7,"window":"1h"}],"enforce":"shadow"`, `,"on_error":"local","share":true,"store":`+store))
	value, err := ctx.App("sliding_window")
	if err != nil {
		t.Fatal(err)
	}
	app := value.(*slidingwindow.App)
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	Poll(t, "three instances", func() bool { return strings.Contains(Admin(t, http.MethodGet, "status", ""), `"instances":3`) })
	for range 9 {
		Serve(t, Get(), h)
	}
	wantShadow(t, ctx, ZoneName(t), [5]float64{2, 7, 0, 0, 0})
	if err := app.Stop(); err != nil {
		t.Fatal(err)
	}
	if registered, _ := f.Shadow.Registered(); registered > 0 || len(f.Taken()) > 0 {
		t.Errorf("the shadow store registered %d times, and %d requests asked the other", registered, len(f.Taken()))
	}
}

// A denied request is not counted in shadow zones, and one that on_error lets pass is.
func TestShadowOfDenied(t *testing.T) {
	shadow := `{"name":"after_shadow","limits":[{"max":9,"window":"1h"}],"enforce":"shadow"}`
	h, ctx := New(t, `{"zones":[`+shadow+`,{"name":"after_on","limits":[{"max":1,"window":"1h"}]}]}`)
	Serve(t, Get(), h)
	r := Get()
	if w := Serve(t, r, h); w.Code != 429 {
		t.Errorf("got %d, want 429", w.Code)
	}
	if got := Expand(r, "{http.sliding_window.after_on.enforced} {http.sliding_window.after_shadow.enforced}|"); got != "true |" {
		t.Errorf("enforced: %q", got)
	}
	wantShadow(t, ctx, "after_shadow", [5]float64{1, 0, 0, 0, 0})
	f, store := NewFake(t, Away)
	f.Shadow.Become(Decides(window.Decision{Limit: 1}))
	h, _ = New(t, `{"zones":[`+strings.Replace(shadow, "after_", "open_", 1)+`,{"name":"open_on","limits":[{"max":1,"window":"1h"}]}],"on_error":"allow","store":`+store+`}`)
	Serve(t, Get(), h)
	wantShadow(t, ctx, "open_shadow", [5]float64{0, 1, 0, 0, 0})
}

// The placeholders of a shadow zone have values once it has decided.
func TestShadowPlaceholders(t *testing.T) {
	gate := make(chan struct{})
	f, store := NewFake(t, nil)
	f.Shadow.Become(func(context.Context, []window.Charge) ([]window.Decision, error) {
		<-gate
		return []window.Decision{{Limit: 2, RetryAfter: 90 * time.Second, ResetAfter: time.Hour}}, nil
	})
	h, ctx := New(t, OfZone(t, TwoAnHour+`,"enforce":"shadow"`, `,"store":`+store))
	r := Get()
	Serve(t, r, h)
	text := "{http.sliding_window.allowed} {http.sliding_window.zone}"
	for _, name := range []string{"enforced", "allowed", "limit", "remaining", "retry_after", "reset_after"} {
		text += " {http.sliding_window." + ZoneName(t) + "." + name + "}"
	}
	if got := Expand(r, text); got != "true  false     " {
		t.Errorf("before it has decided: %q", got)
	}
	close(gate)
	wantShadow(t, ctx, ZoneName(t), [5]float64{0, 1, 0, 0, 0})
	Poll(t, "the decision is told", func() bool { return Expand(r, text) == "true  false false 2 0 90 3600" })
}

// What handlers after a shadow zone know of its matchers is nothing.
func TestShadowMatcherLeavesNoPlaceholder(t *testing.T) {
	const match = `,"match":[{"path_regexp":{"name":"seen","pattern":"^/(.*)$"}}],"key":"{http.regexp.seen.1}"`
	for enforce, want := range map[string]string{"shadow": "", "on": "a"} {
		h, _ := New(t, `{"zones":[{"name":"seen_`+enforce+`"`+match+`,`+TwoAnHour+`,"enforce":"`+enforce+`"}]}`)
		r := Get()
		r.URL.Path = "/a"
		Serve(t, r, h)
		if got := Expand(r, "{http.regexp.seen.1}"); got != want {
			t.Errorf("enforce %s: the regular expression's placeholder is %q, want %q", enforce, got, want)
		}
	}
}

// Charges that wait when a configuration ends are dropped and counted, as are the one that the store has and those that
// come later.
func TestShadowOfFormerConfiguration(t *testing.T) {
	f, store := NewFake(t, nil)
	entered := make(chan struct{})
	f.Shadow.Become(func(ctx context.Context, _ []window.Charge) ([]window.Decision, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	base, err := caddy.ProvisionContext(&caddy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(base)
	defer cancel()
	h, err := Another(ctx, OfZone(t, TwoAnHour+`,"enforce":"shadow"`, `,"store":`+store))
	if err != nil {
		t.Fatal(err)
	}
	_, reader := New(t, OfZone(t, TwoAnHour, ``)) // its registry outlives the other
	Serve(t, Get(), h)
	<-entered
	Serve(t, Get(), h)
	wantShadow(t, reader, ZoneName(t), [5]float64{})
	cancel()
	wantShadow(t, reader, ZoneName(t), [5]float64{0, 0, 0, 0, 2})
	Serve(t, Get(), h)
	wantShadow(t, reader, ZoneName(t), [5]float64{0, 0, 0, 0, 3})
}

func TestShadowWithoutShadowStore(t *testing.T) {
	_, store := NewFake(t, Decides(window.Decision{Allowed: true, Limit: 2}))
	store = strings.Replace(store, `"fake"`, `"plain"`, 1)
	_, ctx := New(t, OfZone(t, TwoAnHour, `,"store":`+store))
	Start(t, ctx)
	const want = `the store cannot keep counters of requests that are not denied apart; write enforce on, or take another store`
	for _, word := range []string{"shadow", "25%"} {
		_, err := Another(ctx, `{"zones":[{"name":"apart`+strings.TrimSuffix(word, "%")+`","enforce":"`+word+`",`+TwoAnHour+`}],"store":`+store+`}`)
		if err == nil || !strings.Contains(err.Error(), "zone apart"+strings.TrimSuffix(word, "%")+": enforce "+word+": "+want) {
			t.Errorf("enforce %s: got %v", word, err)
		}
		if got := Admin(t, http.MethodPost, "enforce", `{"zone":"`+ZoneName(t)+`","mode":"`+word+`","ttl":"1h"}`); !strings.Contains(got, "zone "+ZoneName(t)+": "+want) {
			t.Errorf("set to %s: got %s", word, got)
		}
	}
}

// A matcher that fails in a zone of a percentage is an error for clients that are in, and none for
// the others.
func TestFailingMatcherOfPercentage(t *testing.T) {
	h, _ := New(t, OfZone(t, `"match":[{"expression":"int({http.request.header.X-N}) > 0"}],"key":"{http.request.header.X-Key}","enforce":"50%",`+TwoAnHour, ``))
	for i := range 20 {
		key := strconv.Itoa(i)
		w, err := TryServe(Get("X-Key", key), h)
		if in := enforce.IsEnforced(ZoneName(t), key, 50); in == (err == nil) || !in && w.Code != http.StatusNoContent {
			t.Errorf("key %s, in %v: got %v", key, in, err)
		}
	}
}
