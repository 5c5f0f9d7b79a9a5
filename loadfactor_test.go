package slidingwindow

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/load/loadtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

const (
	// The back end: workers that take a time for each request, the others wait in line.
	backEndWorkers = 4
	backEndTakes   = 20 * time.Millisecond
	// backEndCapacity is what it can do in a second.
	backEndCapacity = backEndWorkers * int(time.Second/backEndTakes)
	backEndRun      = 120 // seconds
)

// backEndFigures are of the requests that were let pass in the second half of a run.
type backEndFigures struct {
	p99       time.Duration
	perSecond [backEndRun / 20]float64 // in each 10 s
	factors   []float64                // each sample
}

func (f *backEndFigures) mean() (mean float64) {
	for _, n := range f.perSecond {
		mean += n / float64(len(f.perSecond))
	}
	return mean
}

// runBackEnd has requests come at random, at twice the rate that the back end can do, in the time of
// a bubble.
func runBackEnd(t *testing.T, zone string) (f backEndFigures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		step := loadtest.StandIn(t, nil, nil)
		h, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":"back_end","key":"all","algorithm":{"name":"log"},%s}]}`, zone))
		z := h.Zones[0]
		if z.load != nil {
			z.load.sampler.Start(z.load.Zone)
		}
		workers := make(chan struct{}, backEndWorkers)
		next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			workers <- struct{}{}
			time.Sleep(backEndTakes)
			<-workers
			w.WriteHeader(http.StatusNoContent)
			return nil
		})
		var mu sync.Mutex // guards what follows
		var took []time.Duration
		var all sync.WaitGroup
		begin := time.Now()
		ask := func() {
			r, w, from := get(), httptest.NewRecorder(), time.Now()
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
			if err := h.ServeHTTP(w, r, next); err != nil {
				t.Error(err)
			}
			second := time.Since(begin).Seconds() - backEndRun/2
			if w.Code != http.StatusNoContent || second < 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(from))
			if i := int(second / 10); i < len(f.perSecond) {
				f.perSecond[i] += 0.1
			}
		}
		random := rand.New(rand.NewPCG(1, 1))
		sampled := begin
		for time.Since(begin) < backEndRun*time.Second {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / float64(2*backEndCapacity)))
			all.Go(ask)
			for time.Since(sampled) >= load.Interval {
				step(1)
				sampled = sampled.Add(load.Interval)
				if z.load != nil && time.Since(begin) >= backEndRun/2*time.Second {
					f.factors = append(f.factors, z.load.Factor())
				}
			}
		}
		all.Wait()
		slices.Sort(took)
		f.p99 = took[len(took)*99/100]
	})
	return f
}

// Requests come at twice the rate that the back end can do, and the limit lets all of them pass. With load,
// those that pass are answered in time, and the number that passes is near the one with the best limit.
func TestLoadBeforeABackEnd(t *testing.T) {
	limits := func(perSecond int) string {
		return fmt.Sprintf(`"limits":[{"max":%d,"window":"1s"}]`, perSecond)
	}
	const follows = `,"load":{"latency":{"lo":"200ms","hi":"1s"}}`
	without, best := runBackEnd(t, limits(3*backEndCapacity)), runBackEnd(t, limits(backEndCapacity))
	with := runBackEnd(t, limits(2*backEndCapacity)+follows)
	for _, f := range []struct {
		name string
		backEndFigures
	}{{"without", without}, {"best limit", best}, {"load", with}} {
		t.Logf("%s: p99 %v, %.1f/s, each 10 s %.1f", f.name, f.p99.Round(time.Millisecond), f.mean(), f.perSecond)
	}
	t.Logf("factor %.2f to %.2f", slices.Min(with.factors), slices.Max(with.factors))
	if with.p99 > without.p99/3 {
		t.Errorf("p99 %v, want a third of %v at most", with.p99, without.p99)
	}
	if with.mean() < 0.8*best.mean() {
		t.Errorf("%.1f a second, want 80 %% of %.1f at least", with.mean(), best.mean())
	}
	for i, n := range with.perSecond {
		if math.Abs(n-with.mean()) > 0.15*with.mean() {
			t.Errorf("ten seconds from %d on: %.1f a second, want 15 %% around %.1f", backEndRun/2+10*i, n, with.mean())
		}
	}
}

// The load scales what is configured, and an override comes after it: its limits are not scaled, and
// its factor multiplies the scaled ones.
func TestLoadThenOverride(t *testing.T) {
	p := newPressure(t)
	h := p.loaded(t, zoneHandler(t, ofKey+`"limits":[{"max":100,"window":"1m"}],`+cpuLoad, ""))
	b := runHandler(t, h, new(mapStorage))
	fixed, doubled := keyed("fixed"), keyed("doubled")
	fixed.Limits = []overrides.Limit{{Max: 50, Window: "1m"}}
	doubled.Factor = 2
	setRecords(t, b, fixed, doubled)
	p.at(1, 3)
	for key, want := range map[string]int{"fixed": 50, "doubled": 60, "none": 30} {
		if n := passes(t, h, key, 120); n != want {
			t.Errorf("%s: %d passed under load, want %d", key, n, want)
		}
		r := get("X-Key", key)
		w := serve(t, r, h)
		source, problem := "override", "#quota-exceeded"
		if key == "none" {
			source, problem = "load", "#temporary-reduced-capacity"
		}
		if got := expand(r, "{http.sliding_window."+zoneName(t)+".source}"); got != source {
			t.Errorf("%s: source %q, want %q", key, got, source)
		}
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), problem) {
			t.Errorf("%s: %d %s, want %s", key, w.Code, w.Body.String(), problem)
		}
	}
}
