package handlertest

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/loadtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
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

// loaded starts a handler with load, past its warm-up.
func (p *pressure) loaded(t testing.TB, config string) (caddyhttp.MiddlewareHandler, caddy.Context) {
	t.Helper()
	h, ctx := New(t, config)
	Start(t, ctx)
	p.step(21)
	return h, ctx
}

// at sets the CPU to a share for some samples.
func (p *pressure) at(cpu float64, samples int) {
	p.cpu = cpu
	p.step(samples)
}

const cpuLoad = `"load":{"cpu":{"lo":"70%","hi":"95%"},"recover":"5s"}`

func TestLoadScalesLimits(t *testing.T) {
	p := newPressure(t)
	h, _ := p.loaded(t, OfZone(t, `"limits":[{"max":100,"window":"1m"},{"max":1000,"window":"1h"}],`+cpuLoad, ""))
	policy := func(w *httptest.ResponseRecorder) string { return w.Header().Get("RateLimit-Policy") }
	name := ZoneName(t)
	want := fmt.Sprintf(`"%[1]s:1m";q=100;w=60, "%[1]s:1h";q=1000;w=3600`, name)
	if got := policy(Serve(t, Get(), h)); got != want {
		t.Errorf("without load: %s, want %s", got, want)
	}
	p.at(1, 3)
	want = fmt.Sprintf(`"%[1]s:1m";q=30;w=60, "%[1]s:1h";q=1000;w=3600`, name)
	for i := range 29 {
		w := Serve(t, Get(), h)
		if got := policy(w); w.Code != http.StatusNoContent || got != want {
			t.Fatalf("request %d under load: %d, %s, want it to pass, %s", i+2, w.Code, got, want)
		}
	}
	denied := func() *httptest.ResponseRecorder {
		t.Helper()
		w := Serve(t, Get(), h)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("above the limit under load: %d, Retry-After %q, want 429", w.Code, w.Header().Get("Retry-After"))
		}
		return w
	}
	if body := denied().Body.String(); !strings.Contains(body, "#temporary-reduced-capacity") {
		t.Errorf("only the load denies: %s, want temporary-reduced-capacity", body)
	}
	p.at(0.4, 5) // the way up has begun
	if w := Serve(t, Get(), h); w.Code != http.StatusNoContent {
		t.Errorf("as the factor rises: %d, want it to pass at once", w.Code)
	}
	p.at(0.4, 20)
	for i := 31; i < 100; i++ {
		if w := Serve(t, Get(), h); w.Code != http.StatusNoContent {
			t.Fatalf("request %d without load: %d, want it to pass", i+1, w.Code)
		}
	}
	if body := denied().Body.String(); !strings.Contains(body, "#quota-exceeded") {
		t.Errorf("the limit itself denies: %s, want quota-exceeded", body)
	}
}

func TestLoadOfLimitZero(t *testing.T) {
	p := newPressure(t)
	h, _ := p.loaded(t, OfZone(t, `"limits":[{"max":0,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"ceiling":"200%"}`, ""))
	for _, cpu := range []float64{0, 1} {
		p.at(cpu, 60)
		if w := Serve(t, Get(), h); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "#quota-exceeded") {
			t.Errorf("CPU at %v: %d %s, want a denial for good", cpu, w.Code, w.Body)
		}
	}
}

func TestLoadOfPlaceholders(t *testing.T) {
	p := newPressure(t)
	h, _ := p.loaded(t, OfZone(t, `"limits":[{"max":"{http.request.header.X-Max}","window":"1m"}],"fallback":{"max":50,"window":"1m"},"key":"{http.request.header.X-Max}",`+cpuLoad, `,"headers":"legacy"`))
	limit := func(header string) string {
		return Serve(t, Get("X-Max", header), h).Header().Get("X-RateLimit-Limit")
	}
	if a, b := limit("200"), limit("many"); a != "200" || b != "50" {
		t.Errorf("without load: %s and %s, want 200 and 50", a, b)
	}
	p.at(1, 3)
	if a, b := limit("200"), limit("many"); a != "60" || b != "15" {
		t.Errorf("under load: %s and %s, want 60 and 15", a, b)
	}
	for range 60 {
		Serve(t, Get("X-Max", "200"), h)
	}
	if w := Serve(t, Get("X-Max", "200"), h); w.Code != 429 || !strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
		t.Errorf("only the load denies: %d %s", w.Code, w.Body)
	}
}

// A request that costs more than the limit under load may come again.
func TestLoadOfLargeCost(t *testing.T) {
	p := newPressure(t)
	h, _ := p.loaded(t, OfZone(t, `"limits":[{"max":100,"window":"1m"}],"cost":50,`+cpuLoad, ""))
	p.at(1, 3)
	if w := Serve(t, Get(), h); w.Code != 429 || w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
		t.Errorf("%d, Retry-After %q, %s, want it in a minute", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
}

// A zone that the load does not scale denies by its own limit.
func TestLoadBesideAnotherZone(t *testing.T) {
	p := newPressure(t)
	h, _ := p.loaded(t, fmt.Sprintf(`{"zones":[{"name":"%[1]s.a","limits":[{"max":10,"window":"1m"}],%[2]s},{"name":"%[1]s.b","limits":[{"max":3,"window":"1m"}]}]}`, ZoneName(t), cpuLoad))
	p.at(1, 3)
	for range 3 {
		Serve(t, Get(), h)
	}
	if w := Serve(t, Get(), h); w.Code != 429 || !strings.Contains(w.Body.String(), "#quota-exceeded") {
		t.Errorf("both deny: %d %s, want quota-exceeded", w.Code, w.Body)
	}
}

// The load scales what is configured, and an override comes after it: its limits are not scaled, and
// its factor multiplies the scaled ones.
func TestLoadThenOverride(t *testing.T) {
	p := newPressure(t)
	h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":100,"window":"1m"}],`+cpuLoad, ""))
	p.step(21)
	setRecords(t, overridestest.Limited("fixed", overrides.RecordLimit{Max: 50, Window: "1m"}), overridestest.Multiplied("doubled", 2))
	p.at(1, 3)
	for key, want := range map[string]int{"fixed": 50, "doubled": 60, "none": 30} {
		if n := passes(t, h, key, 120); n != want {
			t.Errorf("%s: %d passed under load, want %d", key, n, want)
		}
		r := Get("X-Key", key)
		w := Serve(t, r, h)
		source, problem := "override", "#quota-exceeded"
		if key == "none" {
			source, problem = "load", "#temporary-reduced-capacity"
		}
		if got := Expand(r, "{http.sliding_window."+ZoneName(t)+".source}"); got != source {
			t.Errorf("%s: source %q, want %q", key, got, source)
		}
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), problem) {
			t.Errorf("%s: %d %s, want %s", key, w.Code, w.Body.String(), problem)
		}
	}
}

func TestLoadSurvivesReload(t *testing.T) {
	p := newPressure(t)
	config := OfZone(t, `"limits":[{"max":100,"window":"1m"}],`+cpuLoad, `,"headers":"legacy"`)
	h, _ := p.loaded(t, config)
	p.at(1, 3)
	next, _ := New(t, config)
	other, _ := New(t, strings.Replace(config, `"recover"`, `"floor":"50%","recover"`, 1))
	for handler, want := range map[caddyhttp.MiddlewareHandler]string{h: "30", next: "30", other: "50"} {
		if got := Serve(t, Get(), handler).Header().Get("X-RateLimit-Limit"); got != want {
			t.Errorf("limit %s, want %s", got, want)
		}
	}
}

// answered serves a hundred requests at once whose answers take a time.
func answered(t *testing.T, h caddyhttp.MiddlewareHandler, took time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			w := httptest.NewRecorder()
			err := AnswerWith(h, w, Get(), func(w http.ResponseWriter, _ *http.Request) error {
				time.Sleep(took)
				w.WriteHeader(http.StatusNoContent)
				return nil
			})
			if err != nil || w.Code != http.StatusNoContent {
				t.Errorf("got %d, %v", w.Code, err)
			}
		})
	}
	all.Wait()
}

// loadOf returns what the status says of the load of a zone; nil if it says nothing.
func loadOf(t *testing.T, zone string) *control.ZoneLoad {
	t.Helper()
	for _, one := range status(t).Loads {
		if one.Zone == zone {
			return &one
		}
	}
	return nil
}

func TestLoadShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPressure(t)
		h, _ := p.loaded(t, OfZone(t, `"key":"all","limits":[{"max":1000,"window":"1m"},{"max":1000,"window":"1h"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"memory":{"lo":"80%","hi":"95%"},"latency":{"lo":"200ms","hi":"1s"}}`, ""))
		sources := func() string {
			limits := inspect(t, ZoneName(t)).Limits
			return limits[0].Source + " " + limits[1].Source
		}
		if got := sources(); got != "config config" {
			t.Errorf("without load: %s", got)
		}
		p.at(0.95, 3)
		if got := sources(); got != "load config" {
			t.Errorf("under load: %s", got)
		}
		answered(t, h, 500*time.Millisecond)
		p.step(2)
		one := loadOf(t, ZoneName(t))
		if one == nil {
			t.Fatalf("status has no load of the zone: %+v", status(t))
		}
		if one.Factor != 0.3 || one.Signals["cpu"] != 0.95 || one.Signals["memory"] != 0.1 || math.Abs(one.Signals["latency"]-0.5) > 0.02 {
			t.Errorf("status: %+v", one)
		}
	})
}

func TestLoadMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPressure(t)
		h, ctx := p.loaded(t, OfZone(t, `"limits":[{"max":1000,"window":"1m"}],"load":{"cpu":{"lo":"70%","hi":"95%"},"latency":{"lo":"200ms","hi":"1s"}}`, ""))
		p.at(0.825, 3)
		answered(t, h, 100*time.Millisecond)
		p.step(1)
		if got := Metric(t, ctx, "caddy_sliding_window_load_factor_ratio", "zone", ZoneName(t)); math.Abs(got-0.65) > 1e-9 {
			t.Errorf("factor %v, want 0.65", got)
		}
		if got := Metric(t, ctx, "caddy_sliding_window_load_signal_ratio", "signal", "cpu"); got != 0.825 {
			t.Errorf("cpu %v, want 0.825", got)
		}
		if got := Metric(t, ctx, "caddy_sliding_window_load_latency_seconds", "zone", ZoneName(t)); math.Abs(got-0.1) > 0.004 {
			t.Errorf("latency %v, want 0.1", got)
		}
	})
}

// What counts as an answer: an error does, as the highest latency, and a denial of a later handler does not.
func TestLatencyOfAnswers(t *testing.T) {
	denies, _ := New(t, fmt.Sprintf(`{"zones":[{"name":"%s.inner","limits":[{"max":0,"window":"1m"}]}]}`, ZoneName(t)))
	for name, c := range map[string]struct {
		next          caddyhttp.HandlerFunc
		known, failed bool
	}{
		"an answer": {func(w http.ResponseWriter, _ *http.Request) error { _, err := w.Write([]byte("text")); return err }, true, false},
		"an error":  {func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(502, errors.New("refused")) }, true, true},
		"denied later": {func(w http.ResponseWriter, r *http.Request) error {
			return denies.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
		}, false, false},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			p := newPressure(t)
			h, _ := p.loaded(t, OfZone(t, `"key":"all","limits":[{"max":100000,"window":"1m"}],"load":{"latency":{"lo":"200ms","hi":"1s"}}`, ""))
			for range 100 {
				_ = AnswerWith(h, httptest.NewRecorder(), Get(), c.next)
			}
			p.step(1)
			latency, known := loadOf(t, ZoneName(t)).Signals["latency"]
			if known != c.known || (latency > 0.9) != c.failed {
				t.Errorf("latency %v, %v, want known %v, failed %v", latency, known, c.known, c.failed)
			}
		})
	}
}
