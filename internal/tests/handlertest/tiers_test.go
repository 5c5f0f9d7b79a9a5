package handlertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// overheard is a store, and what was last decided in it.
type overheard struct {
	window.Store
	calls int
	last  []string // a line for each charge
}

// Take implements window.Store.
func (h *overheard) Take(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
	ds, err := h.Store.Take(ctx, charges)
	h.calls++
	h.last = nil
	rest := ds
	for _, c := range charges {
		key, _, _ := strings.Cut(c.Key, "/") // the length is that of the zone, or of the tier
		h.last = append(h.last, fmt.Sprintf("%s costs %d of %v, notes %q: %+v", key, c.Cost, c.Policies, c.Fields, rest[:len(c.Policies)]))
		rest = rest[len(c.Policies):]
	}
	return ds, err
}

// world is a handler on a store of its own, whose clock the test sets.
type world struct {
	handler caddyhttp.MiddlewareHandler
	store   *overheard
}

// serve serves a request that the back end answers with a status.
func (w *world) serve(t *testing.T, address, cost string, status int) *httptest.ResponseRecorder {
	t.Helper()
	r, answer := Get("X-Cost", cost), httptest.NewRecorder()
	r.RemoteAddr = address
	if err := AnswerWith(w.handler, answer, r, func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(status)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return answer
}

// A zone with tiers decides as three zones with prefixes do: every field of every decision, and of every answer, in one call of
// the store.
func TestTiersAreThreeZones(t *testing.T) {
	server := redistest.Start(t)
	stores := map[string]func(clock *windowtest.Clock, prefix string) window.Store{
		"memory": func(clock *windowtest.Clock, _ string) window.Store {
			return memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
		},
		"redis": func(clock *windowtest.Clock, prefix string) window.Store {
			return redis.New(redis.Options{Addresses: []string{server.Addr}, Prefix: prefix, Now: clock.Now, Timeout: 10 * time.Second})
		},
	}
	options := map[string]string{
		"zset": ``, "log": `"algorithm":{"name":"log"},`, "stream": `"algorithm":{"name":"stream","fields":[{"name":"paid","value":"{http.request.header.X-Cost}"}]},`, "slices": `"algorithm":{"name":"slices","count":5},`,
		"gcra": `"algorithm":{"name":"gcra"},`, "pack": `"algorithm":{"name":"gcra"},"pack":100,`,
		"cost": `"cost":"{http.request.header.X-Cost}",`, "count_if": `"count_if":{"status_code":[401]},`,
		"settle": `"settle":{"header":"X-None","on_missing":"3","max":9},`,
	}
	for kind, open := range stores {
		for name, option := range options {
			t.Run(kind+"/"+name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(len(kind)), uint64(len(name))))
				clock := windowtest.NewClock()
				start := func(which, zones string) *world {
					w := &world{store: &overheard{Store: open(clock, t.Name()+which)}}
					t.Cleanup(func() { _ = w.store.Close() })
					w.handler, _ = New(t, fmt.Sprintf(`{"zones":[%s],"store":%s}`, zones, Give(t, w.store)))
					return w
				}
				tiered := start("tiered", fmt.Sprintf(`{"name":"a",%s"limits":[{"max":5,"window":"1m"},{"max":9,"window":"5m"},`+
					`{"max":11,"window":"1m","tier":"24/48"},{"max":21,"window":"5m","tier":"24/48"},{"max":30,"window":"2m","tier":"16/32"}]}`, option))
				apart := start("apart", strings.Join([]string{
					fmt.Sprintf(`{"name":"a",%s"limits":[{"max":5,"window":"1m"},{"max":9,"window":"5m"}]}`, option),
					fmt.Sprintf(`{"name":"b",%s"ipv4_prefix":24,"ipv6_prefix":48,"limits":[{"max":11,"window":"1m"},{"max":21,"window":"5m"}]}`, option),
					fmt.Sprintf(`{"name":"c",%s"ipv4_prefix":16,"ipv6_prefix":32,"limits":[{"max":30,"window":"2m"}]}`, option),
				}, ","))
				spell := strings.NewReplacer(`"a:24/48:`, `"b:`, `"a:16/32"`, `"c"`)
				counts := make(map[int]int)
				for i := range 3000 {
					address := fmt.Sprintf("10.%d.%d.%d:1234", r.IntN(2), r.IntN(3), r.IntN(3))
					if r.IntN(2) == 0 {
						address = fmt.Sprintf("[2001:db8:%d:%d::%d]:1234", r.IntN(3), r.IntN(3), r.IntN(9))
					}
					cost, status := fmt.Sprint(r.IntN(4)), []int{200, 401, 401}[r.IntN(3)]
					calls := tiered.store.calls
					got, want := tiered.serve(t, address, cost, status), apart.serve(t, address, cost, status)
					if !reflect.DeepEqual(tiered.store.last, apart.store.last) {
						t.Fatalf("request %d from %s: got\n%s\nwant\n%s", i, address, strings.Join(tiered.store.last, "\n"), strings.Join(apart.store.last, "\n"))
					}
					for name := range want.Header() {
						if spelt := spell.Replace(got.Header().Get(name)); spelt != want.Header().Get(name) {
							t.Fatalf("request %d from %s: %s is %s, want %s", i, address, name, spelt, want.Header().Get(name))
						}
					}
					if got.Code != want.Code || len(got.Header()) != len(want.Header()) {
						t.Fatalf("request %d from %s: got %d, want %d", i, address, got.Code, want.Code)
					}
					counts[got.Code]++
					if !strings.Contains(name, "i") && tiered.store.calls > calls+1 { // a denial with count_if is decided on again
						t.Fatalf("request %d from %s: the store was called %d times", i, address, tiered.store.calls-calls)
					}
					clock.Add(int64(r.IntN(1500)))
				}
				if counts[429] < 100 || counts[200]+counts[401] < 100 {
					t.Errorf("answers by status: %v; the limits test too little", counts)
				}
			})
		}
	}
}

// threeTiers are small limits of an address, a network and a wider one.
const threeTiers = `"limits":[{"max":3,"window":"1h"},{"max":5,"window":"1h","tier":"24/48"},{"max":9,"window":"1h","tier":"16/32"}]`

// tierTraffic is what threeTiers let pass, in turn.
var tierTraffic = []struct {
	address string
	passes  bool
}{
	{"192.0.2.1", true}, {"192.0.2.1", true}, {"192.0.2.1", true}, {"192.0.2.1", false}, {"192.0.2.2", true}, {"192.0.2.2", true},
	{"192.0.2.2", false}, {"192.0.2.3", false}, {"192.0.3.1", true}, {"192.0.3.1", true}, {"192.0.3.1", true}, {"192.0.3.1", false},
	{"192.0.4.1", true}, {"192.0.4.2", false}, {"192.1.4.1", true}, {"2001:db8::1", true},
}

func sendTierTraffic(t *testing.T, h caddyhttp.MiddlewareHandler) {
	t.Helper()
	for i, c := range tierTraffic {
		r := Get()
		r.RemoteAddr = net.JoinHostPort(c.address, "1234")
		if w := Serve(t, r, h); (w.Code == http.StatusNoContent) != c.passes {
			t.Errorf("request %d from %s: got %d, want it to pass: %v", i+1, c.address, w.Code, c.passes)
		}
	}
}

// A request on a zone with tiers is one command of Redis.
func TestTiersAreOneCommand(t *testing.T) {
	server := redistest.Start(t)
	commands := func() (n int) {
		for line := range strings.Lines(server.Client(t).Info(t.Context(), "commandstats").Val()) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			calls, _, _ := strings.Cut(rest, ",")
			if count, err := strconv.Atoi(calls); err == nil && (name == "evalsha" || name == "eval" || name == "fcall") {
				n += count
			}
		}
		return n
	}
	h, _ := New(t, OfZone(t, `"limits":[{"max":300,"window":"1h"},{"max":500,"window":"1h","tier":"24/48"},{"max":900,"window":"1h","tier":"16/32"}]`,
		`,"store":{"module":"redis","timeout":"10s","address":["`+server.Addr+`"]}`))
	Serve(t, Get(), h) // loads scripts
	before := commands()
	for range 50 {
		Serve(t, Get(), h)
	}
	if n := commands() - before; n != 50 {
		t.Errorf("50 requests are %d commands, want 50", n)
	}
	if n := len(server.Client(t).Keys(t.Context(), "*").Val()); n != 3 {
		t.Errorf("Redis has %d keys, want one for the address and one for each network", n)
	}
}

// In a Cluster, the counters of a request are on several nodes, as those of several zones are.
func TestTiersInACluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	h, _ := New(t, OfZone(t, threeTiers, `,"store":{"module":"redis","timeout":"10s","cluster":true,"address":["`+nodes[0].Addr+`"]}`))
	sendTierTraffic(t, h)
}

// While the store is away, local counts decide on all tiers, too. When it is back, it has what they let pass.
func TestTiersWhileAway(t *testing.T) {
	server := redistest.Start(t)
	config := OfZone(t, threeTiers, `,"store":{"module":"redis","timeout":"1s","address":["`+server.Addr+`"]}`)
	h, ctx := New(t, config)
	Start(t, ctx)
	server.Kill()
	sendTierTraffic(t, h)
	server.Restart(t)
	Poll(t, "the wide network is booked", func() bool {
		r := Get()
		r.RemoteAddr = "192.0.5.1:1234"
		w := Serve(t, r, h)
		return w.Code == http.StatusTooManyRequests && server.Client(t).Exists(t.Context(), server.Client(t).Keys(t.Context(), "*192.0.0.0/16*").Val()...).Val() > 0
	})
}

// Load scales the limits of all tiers, by one factor.
func TestLoadScalesTiers(t *testing.T) {
	p := newPressure(t)
	h, _ := p.loaded(t, OfZone(t, `"limits":[{"max":100,"window":"1m"},{"max":1000,"window":"1m","tier":"24/48"},{"max":5000,"window":"1h","tier":"16/32"}],`+cpuLoad, ""))
	name := ZoneName(t)
	p.at(1, 3)
	want := fmt.Sprintf(`"%[1]s";q=30;w=60, "%[1]s:24/48";q=300;w=60, "%[1]s:16/32";q=5000;w=3600`, name)
	for range 2 {
		if got := Serve(t, Get(), h).Header().Get("RateLimit-Policy"); got != want {
			t.Errorf("under load: %s, want %s", got, want)
		}
	}
	source := func(key string) (all []string) {
		i := told[control.Inspection](t, http.MethodPost, "inspect", fmt.Sprintf(`{"zone":%q,"key":%q}`, name, key))
		all = append(all, i.Limits[0].Source)
		for _, tier := range i.Tiers {
			all = append(all, tier.Limits[0].Source)
		}
		return all
	}
	if got := source("192.0.2.1"); !slices.Equal(got, []string{"load", "load", "config"}) {
		t.Errorf("sources of the limits: %q, want load, load and config", got)
	}
	if got := source("192.0.2.0/24"); !slices.Equal(got, []string{"load"}) {
		t.Errorf("sources of the network's limit: %q, want load", got)
	}
}

// Metrics count a request once, and what its answer gives back once. The unit is back in all tiers.
func TestTiersSettleOnce(t *testing.T) {
	h, ctx := New(t, OfZone(t, `"count_if":{"status_code":[401]},`+threeTiers, ""))
	zone := ZoneName(t)
	sum := func(direction string) float64 {
		return Metric(t, ctx, "caddy_sliding_window_settled_units_total", "zone", zone, "direction", direction)
	}
	before, givenBefore, keptBefore := Outcomes(t, ctx, zone, [4]float64{}), sum("given_back"), sum("kept")
	for range 20 { // none of which counts
		Serve(t, Get(), h)
	}
	if given, kept := sum("given_back")-givenBefore, sum("kept")-keptBefore; given != 20 || kept != 0 {
		t.Errorf("%v units were given back and %v kept, want 20 and none", given, kept)
	}
	if got := Outcomes(t, ctx, zone, before); got != [4]float64{20} {
		t.Errorf("outcomes %v, want 20 allowed", got)
	}
	w, r := httptest.NewRecorder(), Get()
	if err := AnswerWith(h, w, r, func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(401); return nil }); err != nil || w.Code != 401 {
		t.Errorf("got %d, %v", w.Code, err)
	}
	if kept := sum("kept") - keptBefore; kept != 1 {
		t.Errorf("%v units were kept, want 1", kept)
	}
}

// An answer that does not tell its cost is counted once.
func TestTiersMissOnce(t *testing.T) {
	h, ctx := New(t, OfZone(t, `"settle":{"header":"X-None"},`+threeTiers, ""))
	missing := func() float64 {
		return Metric(t, ctx, "caddy_sliding_window_settle_missing_total", "zone", ZoneName(t), "reason", "no_usage")
	}
	before := missing()
	Serve(t, Get(), h)
	if n := missing() - before; n != 1 {
		t.Errorf("%v answers did not tell their cost, want 1", n)
	}
}

// The summary of denials has the network that was denied, and each denial once.
func TestTiersInSummaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, ctx, logs := NewObservedByDefault(t, zap.InfoLevel, OfZone(t, `"limits":[{"max":3,"window":"1h"},{"max":1,"window":"1h","tier":"24/48"}]`, `,"log_key":true`))
		Start(t, ctx)
		for i := range 5 {
			r := Get()
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1234", i)
			Serve(t, r, h)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		lines := logs.FilterMessage("zone denied requests").All()
		if len(lines) != 1 {
			t.Fatalf("%d summaries, want 1", len(lines))
		}
		if fields := lines[0].ContextMap(); fields["denied"] != int64(4) || fields["keys"] != int64(1) || !strings.Contains(fmt.Sprint(fields["most"]), "192.0.2.0/24 4") {
			t.Errorf("got %v, want 4 denials of one network", fields)
		}
	})
}

// What denies tells its key to the log and to placeholders: the network, if that is what denies. An operator cannot enforce a part
// of the keys.
func TestTiersAreNamed(t *testing.T) {
	h, ctx, logs := NewObserved(t, zap.DebugLevel, OfZone(t, threeTiers+`,"key":"{client_ip}"`, `,"log_key":true`))
	Start(t, ctx)
	zone := ZoneName(t)
	for i, address := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"} {
		r := Get()
		r.RemoteAddr = address + ":1234"
		w := Serve(t, r, h)
		if i < 5 {
			continue
		}
		if body := w.Body.String(); w.Code != http.StatusTooManyRequests || !strings.Contains(body, `"violated-policies":["`+zone+`:24/48"]`) {
			t.Errorf("got %d %s", w.Code, body)
		}
		if got := Expand(r, "{http.sliding_window."+zone+".limit} {http.sliding_window."+zone+".remaining} {http.sliding_window."+zone+".allowed} {http.sliding_window."+zone+".source} {http.sliding_window.zone}"); got != "5 0 false config "+zone {
			t.Errorf("placeholders: got %s", got)
		}
	}
	entries := logs.FilterMessage("rate limit exceeded").All()
	if len(entries) != 1 || entries[0].ContextMap()["key"] != "192.0.2.0/24" {
		t.Errorf("log: got %v, want the key of the network", entries)
	}
	if answer := Admin(t, http.MethodPost, "overrides/set", fmt.Sprintf(`{"zone":%q,"key":"192.0.2.0/24","limits":[{"max":6,"window":"1h"}]}`, zone)); strings.Contains(answer, `"error"`) {
		t.Fatal(answer)
	}
	for _, c := range [][2]string{{"192.0.2.1", "config"}, {"192.0.2.3", "override"}} { // the address is tightest, and then the network
		r := Get()
		r.RemoteAddr = c[0] + ":1234"
		Serve(t, r, h)
		if got := Expand(r, "{http.sliding_window."+zone+".source}"); got != c[1] {
			t.Errorf("source for %s: got %s, want %s", c[0], got, c[1])
		}
	}
	if answer := Admin(t, http.MethodPost, "overrides/delete", fmt.Sprintf(`{"zone":%q,"key":"192.0.2.0/24"}`, zone)); strings.Contains(answer, `"error"`) {
		t.Error(answer)
	}
	if answer := setEnforce(t, zone, "25%", "1h"); !strings.Contains(answer, "enforce 25% and tier cannot be combined") {
		t.Errorf("enforce 25%%: got %s", answer)
	}
	if answer := setEnforce(t, zone, "shadow", "1h"); strings.Contains(answer, `"error"`) {
		t.Errorf("enforce shadow: got %s", answer)
	}
}

// A factor that only the address could have is refused.
func TestTiersOfFactor(t *testing.T) {
	_, ctx := New(t, OfZone(t, `"limits":[{"max":1,"window":"1m"},{"max":1000000,"window":"1h","tier":"24/48"}]`, ""))
	Start(t, ctx)
	answer := Admin(t, http.MethodPost, "overrides/set", fmt.Sprintf(`{"zone":%q,"all":true,"factor":1000000}`, ZoneName(t)))
	if !strings.Contains(answer, "factor: tier 24/48: factor: the limit times factor is above 2^53") && !strings.Contains(answer, "factor: tier 24/48: limit") {
		t.Errorf("got %s", answer)
	}
}

// A zone that marks requests tells what its tiers decide, and lets all pass.
func TestTiersMark(t *testing.T) {
	h, ctx := New(t, OfZone(t, threeTiers+`,"enforce":"mark"`, ""))
	marked, before := 0, shadowOutcomes(t, ctx, ZoneName(t))
	for i, c := range tierTraffic {
		r := Get()
		r.RemoteAddr = net.JoinHostPort(c.address, "1234")
		w := Serve(t, r, h)
		if got := Expand(r, "{http.sliding_window."+ZoneName(t)+".allowed}"); w.Code != http.StatusNoContent || got != strconv.FormatBool(c.passes) {
			t.Errorf("request %d from %s: got %d, allowed %s, want it to pass, and allowed %v", i+1, c.address, w.Code, got, c.passes)
		}
		if !c.passes {
			marked++
		}
	}
	after := shadowOutcomes(t, ctx, ZoneName(t))
	if allowed, denied := int(after[0]-before[0]), int(after[1]-before[1]); allowed != len(tierTraffic)-marked || denied != marked {
		t.Errorf("%d are counted as allowed and %d as denied, want %d denied, and each request once", allowed, denied, marked)
	}
}
