package slidingwindow

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/tests/handlertest"
)

// responder is a ResponseWriter that keeps only the header.
type responder struct{ header http.Header }

func (w *responder) Header() http.Header         { return w.header }
func (w *responder) Write(b []byte) (int, error) { return len(b), nil }
func (w *responder) WriteHeader(int)             {}

// client sends requests from many addresses, one after the other, as Caddy's server
// would hand them to its routes.
type client struct {
	server    caddyhttp.Server
	addresses []string
	request   *http.Request
	sent      int
}

func newClient(addresses int) *client {
	c := &client{request: handlertest.Get()}
	for i := range addresses {
		c.addresses = append(c.addresses, "198.51."+strconv.Itoa(i/250)+"."+strconv.Itoa(i%250)+":1234")
	}
	return c
}

// send hands a request to h and answers it after that.
func (c *client) send(h caddyhttp.MiddlewareHandler) error {
	c.request.RemoteAddr = c.addresses[c.sent%len(c.addresses)]
	c.sent++
	w := &responder{http.Header{"Server": {"Caddy"}}}
	r := caddyhttp.PrepareRequest(c.request, caddy.NewReplacer(), w, &c.server)
	return h.ServeHTTP(w, r, noContent)
}

var noContent = caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(http.StatusOK)
	return nil
})

// nothing is a handler that lets everything pass.
type nothing struct{}

func (nothing) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}

// BenchmarkHandler sends requests of 10,000 clients. What the handler costs is the
// difference to "without", in which Caddy prepares requests and nothing limits them.
func BenchmarkHandler(b *testing.B) {
	const limit = `"limits":[{"max":1000000,"window":"1m"}]`
	for _, c := range []struct{ name, config string }{
		{"without", ""},
		{"memory", `{"zones":[{"name":"bench",` + limit + `,"algorithm":{"name":"gcra"}}]}`},
		{"memory_zset", `{"zones":[{"name":"bench_zset",` + limit + `}]}`},
		{"load", `{"zones":[{"name":"bench_load",` + limit + `,"load":{"cpu":{"lo":"70%","hi":"95%"}}}]}`},
		{"load_latency", `{"zones":[{"name":"bench_latency",` + limit + `,"load":{"latency":{"lo":"200ms","hi":"1s"}}}]}`},
		{"top_talkers", `{"zones":[{"name":"bench_top",` + limit + `,"algorithm":{"name":"gcra"},"top_talkers":true}]}`},
		{"header_key", `{"zones":[{"name":"bench_header","key":"{http.request.header.X-Key}",` + limit + `,"algorithm":{"name":"gcra"}}]}`},
		{"dynamic_limit", `{"zones":[{"name":"bench_dynamic","limits":[{"max":"{http.request.header.X-Max}","window":"1m"}],
			"fallback":{"max":1000,"window":"1m"},"algorithm":{"name":"gcra"}}]}`},
		{"alert", `{"zones":[{"name":"bench_alert",` + limit + `,"algorithm":{"name":"gcra"},"alert":{}}]}`},
		{"two_zones", `{"zones":[
			{"name":"bench_1",` + limit + `,"algorithm":{"name":"gcra"}},
			{"name":"bench_2",` + limit + `,"algorithm":{"name":"gcra"}}]}`},
		{"concurrent", `{"zones":[{"name":"bench_concurrent","concurrent":{"max":100}}]}`},
		{"concurrent_limit", `{"zones":[{"name":"bench_beside",` + limit + `,"algorithm":{"name":"gcra"},"concurrent":{"max":100}}]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			var h caddyhttp.MiddlewareHandler = nothing{}
			if c.config != "" {
				h, _ = handlertest.New(b, c.config)
			}
			var started atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				client := newClient(10_000)
				client.sent = int(started.Add(1)) * 5000
				client.request.Header = http.Header{"X-Key": {"k3y"}, "X-Max": {"1000000"}}
				for pb.Next() {
					if err := client.send(h); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// TestAllocations bounds what the handler adds to a request that passes: what it
// knows of it, the function that tells placeholders, and the text of RateLimit.
func TestAllocations(t *testing.T) {
	const limit = `"limits":[{"max":1000000,"window":"1h"}]`
	redis := `,"store":{"module":"redis","timeout":"10s","url":"redis://` + redistest.Start(t).Addr + `"}`
	for _, c := range []struct {
		name, config string
		most         float64
	}{
		{"memory", `{"zones":[{"name":"allocations",` + limit + `}]}`, 3},
		{"key of a header", `{"zones":[{"name":"allocations_key","key":"{http.request.header.X-Key}",` + limit + `}]}`, 4},
		{"key of the host", `{"zones":[{"name":"allocations_host","key":"{http.request.host}",` + limit + `}]}`, 4},
		{"key of the path", `{"zones":[{"name":"allocations_path","key":"{http.request.uri.path}",` + limit + `}]}`, 4},
		{"folded key", `{"zones":[{"name":"allocations_fold","key":"{http.request.header.X-Key}","fold_case":true,` + limit + `}]}`, 4},
		{"constant key", `{"zones":[{"name":"allocations_all","key":"all",` + limit + `}]}`, 3},
		{"top talkers", `{"zones":[{"name":"allocations_top",` + limit + `,"top_talkers":true}]}`, 3},
		{"two zones", `{"zones":[{"name":"allocations_1",` + limit + `},{"name":"allocations_2",` + limit + `}]}`, 4},
		{"settle of other requests", `{"zones":[{"name":"allocations_settle","match":[{"path":["/never"]}],"settle":{"usage":"openai"},` + limit + `},{"name":"allocations_beside",` + limit + `}]}`, 3},
		// Without the race detector, under which pools forget, it is one less.
		{"redis", `{"zones":[{"name":"allocations_redis",` + limit + `}]` + redis + `}`, 9},
		{"enforced share", `{"zones":[{"name":"allocations_share",` + limit + `,"enforce":"99%"}]}`, 3},
		{"load", `{"zones":[{"name":"allocations_load","limits":[{"max":1000000,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"}}}]}`, 3},
		// What the zone marks has a piece of memory of its own; clients are told nothing.
		{"mark", `{"zones":[{"name":"allocations_mark",` + limit + `,"enforce":"mark"}]}`, 3},
		// An atomic load tells that no key is banned.
		{"ban", `{"zones":[{"name":"allocations_ban","key":"{http.request.header.X-Key}",` + limit + `,"ban":{"for":"10m"}}]}`, 4},
		// The writer that sees the end of the answer, and the counter, which is new each time.
		{"concurrent", `{"zones":[{"name":"allocations_concurrent","concurrent":{"max":100}}]}`, 17},
		{"alert", `{"zones":[{"name":"allocations_alert",` + limit + `,"alert":{}}],"log_key":true}`, 3},
		{"no fields", `{"zones":[{"name":"allocations_none",` + limit + `}],"headers":"none"}`, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := handlertest.New(t, c.config)
			client := newClient(1)
			client.request.Header.Set("X-Key", "k3y")
			send := func(h caddyhttp.MiddlewareHandler) func() {
				return func() {
					if err := client.send(h); err != nil {
						t.Fatal(err)
					}
				}
			}
			without := testing.AllocsPerRun(1000, send(nothing{}))
			if got := testing.AllocsPerRun(1000, send(h)) - without; got > c.most {
				t.Errorf("the handler adds %v allocations to %v, want %v at most", got, without, c.most)
			}
		})
	}
}

// A request whose key has no override allocates nothing more, however many overrides there are.
func TestOverridesWithoutAHitAllocateNothing(t *testing.T) {
	h, ctx := handlertest.New(t, handlertest.OfZone(t, `"key":"{http.request.header.X-Key}","limits":[{"max":1000000,"window":"1h"}]`, ""))
	handlertest.Start(t, ctx)
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
		records[i] = overrides.Record{Zone: handlertest.ZoneName(t), Pattern: fmt.Sprintf("customer-%d*", i), Deny: true}
	}
	body, err := json.Marshal(control.OverrideSet{Records: records})
	if err != nil {
		t.Fatal(err)
	}
	if answer := handlertest.Admin(t, http.MethodPost, "overrides/replace", string(body)); !strings.HasPrefix(answer, "{") {
		t.Fatal(answer)
	}
	defer handlertest.Admin(t, http.MethodPost, "overrides/replace", `{"records":[]}`)
	if after := testing.AllocsPerRun(1000, send); after > before {
		t.Errorf("%v allocations, and %v without overrides", after, before)
	}
}
