package handlertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/loadtest"
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
	// For each 10 s of the whole run, p99 of what was let pass then, and the factor at the end.
	course [backEndRun / 10]struct {
		took   []time.Duration
		factor float64
	}
}

// p99Of returns the 99th of a hundred times.
func p99Of(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

func (f *backEndFigures) mean() (mean float64) {
	for _, n := range f.perSecond {
		mean += n / float64(len(f.perSecond))
	}
	return mean
}

// runBackEnd makes requests come at random, at twice the rate that the back end can do, in the time of
// a bubble.
func runBackEnd(t *testing.T, zone string) (f backEndFigures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		step := loadtest.StandIn(t, nil, nil)
		h, ctx := New(t, fmt.Sprintf(`{"zones":[{"name":"back_end","key":"all","algorithm":{"name":"log"},%s}]}`, zone))
		Start(t, ctx)
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
			w, from := httptest.NewRecorder(), time.Now()
			if err := AnswerWith(h, w, Get(), next); err != nil {
				t.Error(err)
			}
			second := time.Since(begin).Seconds() - backEndRun/2
			if w.Code != http.StatusNoContent {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if i := int(from.Sub(begin) / (10 * time.Second)); i < len(f.course) {
				f.course[i].took = append(f.course[i].took, time.Since(from))
			}
			if second < 0 {
				return
			}
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
				load := loadOf(t, "back_end")
				if load == nil {
					continue
				}
				if i := int(time.Since(begin) / (10 * time.Second)); i < len(f.course) {
					f.course[i].factor = load.Factor
				}
				if time.Since(begin) >= backEndRun/2*time.Second {
					f.factors = append(f.factors, load.Factor)
				}
			}
		}
		all.Wait()
		f.p99 = p99Of(took)
	})
	return f
}

// Requests come at twice the rate that the back end can do, and the limit lets all of them pass. With load,
// those that pass are answered in time, and the number that passes is near the one with the best limit: in
// windows of 1 s, and in windows of 10 s with bounds of a fifth and four fifths of the window. An exact limit lets
// a window's requests pass at its beginning, and they wait for the back end as long as that takes it.
func TestLoadBeforeABackEnd(t *testing.T) {
	limits := func(perSecond, seconds int) string {
		return fmt.Sprintf(`"limits":[{"max":%d,"window":"%ds"}]`, perSecond*seconds, seconds)
	}
	without, best := runBackEnd(t, limits(3*backEndCapacity, 1)), runBackEnd(t, limits(backEndCapacity, 1))
	short := runBackEnd(t, limits(2*backEndCapacity, 1)+`,"load":{"latency":{"lo":"200ms","hi":"1s"}}`)
	long := runBackEnd(t, limits(2*backEndCapacity, 10)+`,"load":{"latency":{"lo":"2s","hi":"8s"}}`)
	for _, f := range []struct {
		name string
		backEndFigures
		steady float64 // the mean of ten seconds is that near to the mean of all; 0: not asked for
	}{{"without", without, 0}, {"best limit", best, 0}, {"load, 1 s", short, 0.15}, {"load, 10 s", long, 0.1}} {
		t.Logf("%s: p99 %v, %.1f/s, each 10 s %.1f", f.name, f.p99.Round(time.Millisecond), f.mean(), f.perSecond)
		if f.steady == 0 {
			continue
		}
		t.Logf("factor %.2f to %.2f", slices.Min(f.factors), slices.Max(f.factors))
		if f.p99 > without.p99/3 {
			t.Errorf("%s: p99 %v, want a third of %v at most", f.name, f.p99, without.p99)
		}
		if f.mean() < 0.8*best.mean() {
			t.Errorf("%s: %.1f a second, want 80 %% of %.1f at least", f.name, f.mean(), best.mean())
		}
		for i, n := range f.perSecond {
			if math.Abs(n-f.mean()) > f.steady*f.mean() {
				t.Errorf("%s: ten seconds from %d on: %.1f a second, want %.0f %% around %.1f", f.name, backEndRun/2+10*i, n, 100*f.steady, f.mean())
			}
		}
	}
	for i := range without.course { // the table of bench/RESULTS.md
		seconds := func(f *backEndFigures) float64 { return p99Of(f.course[i].took).Seconds() }
		t.Logf("| %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |", 10*(i+1), seconds(&without), seconds(&best),
			seconds(&short), seconds(&long), short.course[i].factor, long.course[i].factor)
	}
}
