package slidingwindow

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const (
	// The back end: workers that take a time for each request, the others wait in line.
	backEndWorkers = 4
	backEndTakes   = 20 * time.Millisecond
	// backEndCapacity is what it can do in a second.
	backEndCapacity = backEndWorkers * int(time.Second/backEndTakes)
	backEndRun      = 120 // seconds
)

// backEndFigures are of the requests of a run that were let pass.
type backEndFigures struct {
	p99       time.Duration
	perSecond float64   // in the second half
	factors   []float64 // each second of the second half
}

// runBackEnd has requests come at random, twice as many as the back end can do, in the time of
// a bubble.
func runBackEnd(t *testing.T, zone string, seed uint64) (f backEndFigures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		step := StandInLoads(t, nil, nil)
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
		late := 0
		var all sync.WaitGroup
		begin := time.Now()
		ask := func() {
			r, w, from := get(), httptest.NewRecorder(), time.Now()
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
			if err := h.ServeHTTP(w, r, next); err != nil {
				t.Error(err)
			}
			if w.Code != http.StatusNoContent {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(from))
			if s := time.Since(begin).Seconds(); s >= backEndRun/2 && s < backEndRun {
				late++
			}
		}
		random := rand.New(rand.NewPCG(seed, 1))
		sampled := begin
		for time.Since(begin) < backEndRun*time.Second {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / float64(2*backEndCapacity)))
			all.Go(ask)
			for time.Since(sampled) >= 500*time.Millisecond {
				step(1)
				sampled = sampled.Add(500 * time.Millisecond)
				if s := time.Since(begin).Seconds(); z.load != nil && s >= backEndRun/2 {
					f.factors = append(f.factors, z.load.Factor())
				}
			}
		}
		all.Wait()
		slices.Sort(took)
		f.p99, f.perSecond = took[len(took)*99/100], float64(late)/(backEndRun/2)
	})
	return f
}

// Twice as many requests come as the back end can do, and the limit lets all of them pass. With load,
// those that pass are answered in time, about as many as with the best limit.
func TestLoadBeforeABackEnd(t *testing.T) {
	limits := func(perSecond int) string { return fmt.Sprintf(`"limits":[{"max":%d,"window":"10s"}]`, 10*perSecond) }
	without := runBackEnd(t, limits(3*backEndCapacity), 1)
	best := runBackEnd(t, limits(backEndCapacity), 1)
	with := runBackEnd(t, limits(2*backEndCapacity)+`,"load":{"latency":{"lo":"200ms","hi":"1s"},"floor":"30%"}`, 1)
	lowest, highest := slices.Min(with.factors), slices.Max(with.factors)
	for name, f := range map[string]backEndFigures{"without": without, "best limit": best, "load": with} {
		t.Logf("%s: p99 %v, %.1f/s", name, f.p99.Round(time.Millisecond), f.perSecond)
	}
	t.Logf("factor %.3f to %.3f", lowest, highest)
	if with.p99 > without.p99/3 {
		t.Errorf("p99 %v, want a third of %v at most", with.p99, without.p99)
	}
	if with.perSecond < 0.8*best.perSecond {
		t.Errorf("%.1f a second, want 80 %% of %.1f at least", with.perSecond, best.perSecond)
	}
	if middle := (lowest + highest) / 2; highest-middle > 0.1*middle {
		t.Errorf("the factor goes from %v to %v, want 10 %% around a middle", lowest, highest)
	}
}
