// Package handlertest runs handlers in this process, without a server, for tests. Its own tests are
// those of the handler that need to know nothing of its inside.
package handlertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
)

// TwoAnHour is a zone's limit, as JSON.
const TwoAnHour = `"limits":[{"max":2,"window":"1h"}]`

// New provisions a handler until the end of the test. The package of the plugin has to be imported.
func New(tb testing.TB, config string) (caddyhttp.MiddlewareHandler, caddy.Context) {
	tb.Helper()
	return provision(tb, &caddy.Config{}, config)
}

func provision(tb testing.TB, of *caddy.Config, config string) (caddyhttp.MiddlewareHandler, caddy.Context) {
	tb.Helper()
	root, _ := json.Marshal(caddy.AppDataDir()) // of the tests: the default is that of when this process began
	of.StorageRaw = json.RawMessage(`{"module":"file_system","root":` + string(root) + `}`)
	base, err := caddy.ProvisionContext(of)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(base)
	tb.Cleanup(cancel)
	h, err := Another(ctx, config)
	if err != nil {
		tb.Fatal(err)
	}
	return h, ctx
}

// Another provisions one more handler of a configuration.
func Another(ctx caddy.Context, config string) (caddyhttp.MiddlewareHandler, error) {
	h, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(config))
	if err != nil {
		return nil, err
	}
	return h.(caddyhttp.MiddlewareHandler), nil
}

// OfZone is a configuration of one zone, which no other test has.
func OfZone(t testing.TB, zone, more string) string {
	t.Helper()
	return fmt.Sprintf(`{"zones":[{"name":%q,%s}]%s}`, ZoneName(t), zone, more)
}

// ZoneName is the name of the zone of OfZone.
func ZoneName(t testing.TB) string {
	t.Helper()
	return strings.NewReplacer("/", ".", "#", ".").Replace(t.Name())
}

// Get is a request from 192.0.2.1 with these header fields, name after name.
func Get(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// Serve hands a request to the handlers in turn, and answers 204 after the last.
func Serve(t testing.TB, r *http.Request, handlers ...caddyhttp.MiddlewareHandler) *httptest.ResponseRecorder {
	t.Helper()
	w, err := TryServe(r, handlers...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TryServe is Serve for a request that may end in an error.
func TryServe(r *http.Request, handlers ...caddyhttp.MiddlewareHandler) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	prepared := caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	*r = *prepared
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	for i := len(handlers) - 1; i >= 0; i-- {
		h, after := handlers[i], next
		next = func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, after) }
	}
	return w, next(w, r)
}

// AnswerWith serves one request with next behind a handler. A panic is an error.
func AnswerWith(h caddyhttp.MiddlewareHandler, w http.ResponseWriter, r *http.Request, next caddyhttp.HandlerFunc) (err error) {
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	return h.ServeHTTP(w, r, next)
}

// Expand replaces the placeholders of a request that was served.
func Expand(r *http.Request, text string) string {
	return r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll(text, "")
}

// Metric returns what the registry of a configuration says of a counter, gauge or histogram (how many
// observations) with these labels, name after name.
func Metric(t testing.TB, ctx caddy.Context, name string, labels ...string) float64 {
	t.Helper()
	value, ok := metricstest.Find(t, gatherer(t, ctx.GetMetricsRegistry(), name), name, labels...)
	if !ok {
		t.Fatalf("no metric %s%q", name, labels)
	}
	return value
}

// gatherer returns what gathers a metric of a registry: it alone if that can be, as the others have the zones of all
// tests.
func gatherer(t testing.TB, registry *prometheus.Registry, name string) prometheus.Gatherer {
	t.Helper()
	for _, c := range metrics.All {
		descriptions := make(chan *prometheus.Desc, 1)
		c.Describe(descriptions)
		if d := <-descriptions; !strings.Contains(d.String(), fmt.Sprintf("fqName: %q", name)) {
			continue
		}
		if registry.Register(c) == nil {
			t.Fatalf("no configuration registers %s", name)
		}
		return metricstest.Of(c)
	}
	return registry
}

// Outcomes returns the decisions on a zone beyond those before: allowed, denied,
// failed_open and failed_closed.
func Outcomes(t testing.TB, ctx caddy.Context, zone string, before [4]float64) [4]float64 {
	t.Helper()
	var n [4]float64
	for i, outcome := range []string{"allowed", "denied", "failed_open", "failed_closed"} {
		n[i] = Metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", zone, "outcome", outcome) - before[i]
	}
	return n
}

// Poll waits for what no event tells.
func Poll(t testing.TB, what string, done func() bool) {
	t.Helper()
	caddyrun.Eventually(t, 20*time.Second, what, done)
}

// Start starts the app of a configuration until the end of the test, or until stop is called.
func Start(tb testing.TB, ctx caddy.Context) (stop func()) {
	tb.Helper()
	app, err := ctx.App("sliding_window")
	if err != nil {
		tb.Fatal(err)
	}
	if err := app.(caddy.App).Start(); err != nil {
		tb.Fatal(err)
	}
	stop = sync.OnceFunc(func() { _ = app.(caddy.App).Stop() })
	tb.Cleanup(stop)
	return stop
}

// Admin returns what the admin API answers below /sliding_window/, or the text of its error. It knows the zones of
// apps that were started.
func Admin(tb testing.TB, method, path, body string) string {
	tb.Helper()
	module, err := caddy.GetModule("admin.api.sliding_window")
	if err != nil {
		tb.Fatal(err)
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/sliding_window/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if err := module.New().(caddy.AdminRouter).Routes()[0].Handler.ServeHTTP(w, r); err != nil {
		return err.Error()
	}
	return w.Body.String()
}
