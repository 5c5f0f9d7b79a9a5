package handlertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

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
		h.last = append(h.last, fmt.Sprintf("%s costs %d of %v: %+v", key, c.Cost, c.Policies, rest[:len(c.Policies)]))
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
		"zset": ``, "log": `"algorithm":{"name":"log"},`, "stream": `"algorithm":{"name":"stream"},`, "slices": `"algorithm":{"name":"slices","count":5},`,
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
