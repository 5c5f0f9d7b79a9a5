package slidingwindow

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/load/loadtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
)

// pressure is a CPU that a test sets.
type pressure struct {
	cpu  float64
	step func(n int) // takes samples
}

func newPressure(t testing.TB) *pressure {
	p := &pressure{cpu: 0.4}
	p.step = loadtest.StandIn(t, func() (float64, error) { return p.cpu, nil }, func() (float64, error) { return 0.1, nil })
	return p
}

// loaded provisions a handler with load, past its warm-up.
func (p *pressure) loaded(t testing.TB, config string) *Handler {
	t.Helper()
	h, _ := newHandler(t, config)
	for _, z := range h.Zones {
		z.load.Start()
	}
	p.step(21)
	return h
}

// at has the CPU be at a share for some samples.
func (p *pressure) at(cpu float64, samples int) {
	p.cpu = cpu
	p.step(samples)
}

const cpuLoad = `"load":{"cpu":{"lo":"70%","hi":"95%"},"recover":"5s"}`

func TestLoadScalesLimits(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, handlertest.OfZone(t, `"limits":[{"max":100,"window":"1m"},{"max":1000,"window":"1h"}],`+cpuLoad, ""))
	policy := func(w *httptest.ResponseRecorder) string { return w.Header().Get("RateLimit-Policy") }
	name := handlertest.ZoneName(t)
	want := fmt.Sprintf(`"%[1]s:1m";q=100;w=60, "%[1]s:1h";q=1000;w=3600`, name)
	if got := policy(handlertest.Serve(t, handlertest.Get(), h)); got != want {
		t.Errorf("without load: %s, want %s", got, want)
	}
	p.at(1, 3)
	want = fmt.Sprintf(`"%[1]s:1m";q=30;w=60, "%[1]s:1h";q=1000;w=3600`, name)
	for i := range 29 {
		w := handlertest.Serve(t, handlertest.Get(), h)
		if got := policy(w); w.Code != http.StatusNoContent || got != want {
			t.Fatalf("request %d under load: %d, %s, want it to pass, %s", i+2, w.Code, got, want)
		}
	}
	denied := func() *httptest.ResponseRecorder {
		t.Helper()
		w := handlertest.Serve(t, handlertest.Get(), h)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("above the limit under load: %d, Retry-After %q, want 429", w.Code, w.Header().Get("Retry-After"))
		}
		return w
	}
	if body := denied().Body.String(); !strings.Contains(body, "#temporary-reduced-capacity") {
		t.Errorf("only the load denies: %s, want temporary-reduced-capacity", body)
	}
	p.at(0.4, 5) // the way up has begun
	if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != http.StatusNoContent {
		t.Errorf("as the factor rises: %d, want it to pass at once", w.Code)
	}
	p.at(0.4, 20)
	for i := 31; i < 100; i++ {
		if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != http.StatusNoContent {
			t.Fatalf("request %d without load: %d, want it to pass", i+1, w.Code)
		}
	}
	if body := denied().Body.String(); !strings.Contains(body, "#quota-exceeded") {
		t.Errorf("the limit itself denies: %s, want quota-exceeded", body)
	}
}

func TestLoadOfLimitZero(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, handlertest.OfZone(t, `"limits":[{"max":0,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"ceiling":"200%"}`, ""))
	for _, cpu := range []float64{0, 1} {
		p.at(cpu, 60)
		if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "#quota-exceeded") {
			t.Errorf("CPU at %v: %d %s, want a denial for good", cpu, w.Code, w.Body)
		}
	}
}

func TestLoadOfPlaceholders(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, handlertest.OfZone(t, `"limits":[{"max":"{http.request.header.X-Max}","window":"1m"}],"fallback":{"max":50,"window":"1m"},"key":"{http.request.header.X-Max}",`+cpuLoad, `,"headers":"legacy"`))
	limit := func(header string) string {
		return handlertest.Serve(t, handlertest.Get("X-Max", header), h).Header().Get("X-RateLimit-Limit")
	}
	if a, b := limit("200"), limit("many"); a != "200" || b != "50" {
		t.Errorf("without load: %s and %s, want 200 and 50", a, b)
	}
	p.at(1, 3)
	if a, b := limit("200"), limit("many"); a != "60" || b != "15" {
		t.Errorf("under load: %s and %s, want 60 and 15", a, b)
	}
	for range 60 {
		handlertest.Serve(t, handlertest.Get("X-Max", "200"), h)
	}
	if w := handlertest.Serve(t, handlertest.Get("X-Max", "200"), h); w.Code != 429 || !strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
		t.Errorf("only the load denies: %d %s", w.Code, w.Body)
	}
}

// A request that costs more than the limit under load may come again.
func TestLoadOfLargeCost(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, handlertest.OfZone(t, `"limits":[{"max":100,"window":"1m"}],"cost":50,`+cpuLoad, ""))
	p.at(1, 3)
	if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != 429 || w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
		t.Errorf("%d, Retry-After %q, %s, want it in a minute", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
}

// A zone that the load does not scale denies by its own limit.
func TestLoadBesideAnotherZone(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, fmt.Sprintf(`{"zones":[{"name":"%[1]s.a","limits":[{"max":10,"window":"1m"}],%[2]s},{"name":"%[1]s.b","limits":[{"max":3,"window":"1m"}]}]}`, handlertest.ZoneName(t), cpuLoad))
	p.at(1, 3)
	for range 3 {
		handlertest.Serve(t, handlertest.Get(), h)
	}
	if w := handlertest.Serve(t, handlertest.Get(), h); w.Code != 429 || !strings.Contains(w.Body.String(), "#quota-exceeded") {
		t.Errorf("both deny: %d %s, want quota-exceeded", w.Code, w.Body)
	}
}

func TestLoadSurvivesReload(t *testing.T) {
	p := newPressure(t)
	config := handlertest.OfZone(t, `"limits":[{"max":100,"window":"1m"}],`+cpuLoad, "")
	h := p.loaded(t, config)
	p.at(1, 3)
	next, _ := newHandler(t, config)
	other, _ := newHandler(t, strings.Replace(config, `"recover"`, `"floor":"50%","recover"`, 1))
	for handler, want := range map[*Handler]float64{h: 0.3, next: 0.3, other: 0.5} {
		if got := handler.Zones[0].load.Factor(); got != want {
			t.Errorf("factor %v, want %v", got, want)
		}
	}
}

func TestLoadShown(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, handlertest.OfZone(t, `"limits":[{"max":100,"window":"1m"},{"max":100,"window":"1h"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"memory":{"lo":"80%","hi":"95%"},"latency":{"lo":"200ms","hi":"1s"}}`, ""))
	own := []*running.Zone{h.newRunningZone(h.Zones[0])}
	running.Zones.Add(own)
	defer running.Zones.Remove(own)
	z := h.Zones[0]
	sources := func() string {
		c, _ := z.charge("key", nil)
		return z.sourceOf(c.Policies[0]) + " " + z.sourceOf(c.Policies[1])
	}
	if got := sources(); got != "config config" {
		t.Errorf("without load: %s", got)
	}
	p.at(0.95, 3)
	if got := sources(); got != "load config" {
		t.Errorf("under load: %s", got)
	}
	for range 100 {
		z.load.Answered(500 * time.Millisecond)
	}
	p.step(2)
	for _, one := range running.Loads() {
		if one.Zone != z.Name {
			continue
		}
		latency := one.Signals["latency"]
		if one.Factor != 0.3 || one.Signals["cpu"] != 0.95 || one.Signals["memory"] != 0.1 || math.Abs(latency-0.5) > 0.02 {
			t.Errorf("status: %+v", one)
		}
		return
	}
	t.Errorf("status has no load of the zone: %+v", running.Loads())
}

func ptr[T any](v T) *T { return &v }

func TestLoadMetrics(t *testing.T) {
	p := newPressure(t)
	config := handlertest.OfZone(t, `"limits":[{"max":100,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"latency":{"lo":"200ms","hi":"1s"}}`, "")
	h := p.loaded(t, config)
	_, ctx := newHandler(t, config)
	own := []*running.Zone{h.newRunningZone(h.Zones[0])}
	running.Zones.Add(own)
	defer running.Zones.Remove(own)
	p.at(0.825, 3)
	for range 100 {
		h.Zones[0].load.Answered(100 * time.Millisecond)
	}
	p.step(1)
	if got := metric(t, ctx, "caddy_sliding_window_load_factor_ratio", "zone", handlertest.ZoneName(t)); math.Abs(got-0.65) > 1e-9 {
		t.Errorf("factor %v, want 0.65", got)
	}
	if got := metric(t, ctx, "caddy_sliding_window_load_signal_ratio", "signal", "cpu"); got != 0.825 {
		t.Errorf("cpu %v, want 0.825", got)
	}
	if got := metric(t, ctx, "caddy_sliding_window_load_latency_seconds", "zone", handlertest.ZoneName(t)); math.Abs(got-0.1) > 0.004 {
		t.Errorf("latency %v, want 0.1", got)
	}
}

// served is a request to handlers whose answer is measured.
type served struct {
	t       *testing.T
	handler *Handler
}

// latency serves a request a hundred times, and returns the percentile that is measured.
func (s served) latency(next caddyhttp.HandlerFunc, request func() *http.Request, inner ...*Handler) (time.Duration, bool) {
	s.t.Helper()
	z := s.handler.Zones[0].load
	own := load.Sampler{Manual: true} // whose steps nothing else takes
	fresh := own.Acquire("", z.Options())
	own.Start(fresh)
	z.Zone = fresh
	for range 100 {
		all := []caddyhttp.MiddlewareHandler{s.handler}
		for _, h := range inner {
			all = append(all, h)
		}
		all = append(all, answering{next})
		func() {
			defer func() { _ = recover() }()
			_, _ = handlertest.TryServe(request(), all...)
		}()
	}
	own.Step(time.Now())
	return fresh.Latency()
}

// answering is a handler that answers, after all others.
type answering struct{ next caddyhttp.HandlerFunc }

func (a answering) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return a.next(w, r)
}

func TestLatencyOfAnswers(t *testing.T) {
	newPressure(t)
	const zone = `"key":"all","limits":[{"max":100000,"window":"1m"}],"load":{"latency":{"lo":"200ms","hi":"1s"}}`
	h, _ := newHandler(t, handlertest.OfZone(t, zone, ""))
	s := served{t, h}
	plain := func() *http.Request { return handlertest.Get() }
	for name, c := range map[string]struct {
		next   caddyhttp.HandlerFunc
		failed bool
	}{
		"an answer": {answers(200, "text"), false},
		"an error":  {fails(caddyhttp.Error(502, errors.New("refused"))), true},
	} {
		took, known := s.latency(c.next, plain)
		if !known || (took > 900*time.Millisecond) != c.failed {
			t.Errorf("%s: latency %v, %v, want it known, failed %v", name, took, known, c.failed)
		}
	}
	// Denials of later handlers are not answers.
	inner, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":"%s.inner","limits":[{"max":0,"window":"1m"}]}]}`, handlertest.ZoneName(t)))
	if took, known := s.latency(answers(200, ""), plain, inner); known {
		t.Errorf("denied later: latency %v, want none", took)
	}
}
