package slidingwindow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/handlertest"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// settleBy answers a request with a status.
func settleBy(h *Handler, code int, header ...string) int {
	w := httptest.NewRecorder()
	_ = handlertest.AnswerWith(h, w, handlertest.Get(header...), func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(code)
		return nil
	})
	return w.Code
}

// settled returns what the metrics say of a zone: units kept and given back, and failures.
func settled(t *testing.T, ctx caddy.Context, zone string) string {
	t.Helper()
	units := func(direction string) float64 {
		return metric(t, ctx, "caddy_sliding_window_settled_units_total", "zone", zone, "direction", direction)
	}
	failures := func(reason string) float64 {
		return metric(t, ctx, "caddy_sliding_window_settle_errors_total", "zone", zone, "reason", reason)
	}
	return fmt.Sprintf("%v kept, %v given back, %v unknown, %v failed", units("kept"), units("given_back"), failures("unknown"), failures("failed"))
}

// Settled units and settlements that fail are counted.
func TestSettledMetrics(t *testing.T) {
	admit := handlertest.Decides(window.Decision{Allowed: true, Limit: 10, Remaining: 5, At: 1})
	f, store := handlertest.NewFake(t, admit)
	h, ctx := newHandler(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":10,"window":"1h"}],"cost":3,"count_if":{"status_code":[401]}}],"store":%s,"on_error":"deny"}`, handlertest.ZoneName(t), store))
	settle := func(code int) {
		settleBy(h, code)
		h.store.Settler.Drain(10 * time.Second)
	}
	settle(401)
	settle(200)
	settle(404)
	if got, want := settled(t, ctx, handlertest.ZoneName(t)), "3 kept, 6 given back, 0 unknown, 0 failed"; got != want || f.Settled() != -6 {
		t.Errorf("%s, and the store got %d, want %s and -6", got, f.Settled(), want)
	}
	for _, cause := range []error{window.ErrUnknown, window.ErrForeign} {
		settleAfter(f, admit, cause, func() { settle(200) })
	}
	if got, want := settled(t, ctx, handlertest.ZoneName(t)), "3 kept, 6 given back, 1 unknown, 1 failed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// settleAfter has the store admit a request, and fail with what comes after.
func settleAfter(f *handlertest.Fake, admit func(context.Context, []window.Charge) ([]window.Decision, error), cause error, run func()) {
	f.Become(func(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
		f.Become(func(context.Context, []window.Charge) ([]window.Decision, error) {
			return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, cause)
		})
		return admit(ctx, charges)
	})
	run()
	f.Become(admit)
}

// A denial that a give-back has overtaken is decided on again: a client that has its answer has its unit
// back.
func TestDecidedAgain(t *testing.T) {
	denied := window.Decision{Limit: 1, RetryAfter: time.Hour, EffectiveWindow: time.Hour, At: 1}
	f, store := handlertest.NewFake(t, nil)
	h, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}}],"store":%s,"on_error":"deny"}`, handlertest.ZoneName(t), store))
	flying := h.store.Settler.InFlight()
	asked := 0
	f.Become(func(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
		if asked++; asked == 1 {
			flying.BacksOf(flying.Counter(&charges[0])).Add(1)
			return []window.Decision{denied}, nil
		}
		return []window.Decision{{Allowed: true, Limit: 1, At: 1}}, nil
	})
	if code := settleBy(h, 401); code != 401 || asked != 2 {
		t.Errorf("status %d after %d decisions, want 401 after 2", code, asked)
	}
	f.Become(handlertest.Decides(denied))
	before := len(f.Taken())
	if code := settleBy(h, 401); code != 429 || len(f.Taken())-before != 1 {
		t.Errorf("status %d after %d decisions, want 429 after 1", code, len(f.Taken())-before)
	}
}

// booked is what an answer cost, from the time at which its request was decided on.
type booked struct{ at, units int64 }

// crowd has 50 clients ask a handler that reserves some units, and answers them at random times with a
// cost. It ends when each client has been denied as often as it asks for, and returns what was booked.
func crowd(t *testing.T, h *Handler, denials int, cost func() int64) []booked {
	t.Helper()
	var mu sync.Mutex
	var all []booked
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for denied := 0; denied < denials; {
				w := httptest.NewRecorder()
				_ = handlertest.AnswerWith(h, w, handlertest.Get(), func(w http.ResponseWriter, r *http.Request) error {
					vars := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
					one := booked{vars[requestVar].(*request).decisions[0].At, cost()}
					time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
					mu.Lock()
					all = append(all, one)
					mu.Unlock()
					return answers(200, fmt.Sprintf(`{"usage":{"prompt_tokens":%d,"completion_tokens":0}}`, one.units))(w, r)
				})
				if w.Code == http.StatusTooManyRequests {
					denied++
					time.Sleep(2 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return all
}

// tokenZones runs a test with each store and some algorithms.
func tokenZones(t *testing.T, run func(t *testing.T, algorithm, store string)) {
	for store, config := range map[string]string{
		"memory": `{"module":"memory"}`,
		"redis":  `{"module":"redis","timeout":"10s","url":"redis://` + redistest.Start(t).Addr + `"}`,
	} {
		for _, algorithm := range []string{"zset", "log", "stream", "slices"} {
			t.Run(store+" "+algorithm, func(t *testing.T) { run(t, algorithm, config) })
		}
	}
}

// most returns the most units that were booked in any window of a length in ms.
func most(all []booked, length int64) (n int64) {
	slices.SortFunc(all, func(a, b booked) int { return int(a.at - b.at) })
	sum, from := int64(0), 0
	for _, b := range all {
		sum += b.units
		for all[from].at <= b.at-length {
			sum -= all[from].units
			from++
		}
		n = max(n, sum)
	}
	return n
}

// 50 clients with estimates above the truth: not one unit too many passes in any window, and at least 90 %
// of the limit are used.
func TestTokenLimitHolds(t *testing.T) {
	tokenZones(t, func(t *testing.T, algorithm, store string) {
		const limit, estimate = 100_000, 600
		cost := func() int64 { return 500 + rand.Int64N(estimate-500+1) } // 50 × 100 is 5 % of the limit
		config := `{"zones":[{"name":"%s_%s","key":"all","limits":[{"max":%d,"window":"%s"}],"cost":%d,"algorithm":{"name":"%s"},"settle":{"usage":"openai"}}],"store":%s}`
		long, _ := newHandler(t, fmt.Sprintf(config, "hold", algorithm, limit, "1h", estimate, algorithm, store))
		all := crowd(t, long, 20, cost)
		if n := most(all, 3_600_000); n > limit || n < limit*9/10 {
			t.Errorf("%d units passed, want at most %d and 90 %% of it", n, limit)
		}
		short, _ := newHandler(t, fmt.Sprintf(config, "hold_short", algorithm, limit, "1s", estimate, algorithm, store))
		if n := most(crowd(t, short, 400, cost), 1000); n > limit {
			t.Errorf("%d units passed in one window, want at most %d", n, limit)
		}
	})
}

// 50 clients with an estimate of 1: what passes above the limit was in flight when the limit was reached.
func TestTokenLimitWithLowEstimates(t *testing.T) {
	tokenZones(t, func(t *testing.T, algorithm, store string) {
		const limit, truth = 100_000, 500
		h, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":"low_%s","key":"all","limits":[{"max":%d,"window":"1h"}],"algorithm":{"name":%q},"settle":{"usage":"openai"}}],"store":%s}`, algorithm, limit, algorithm, store))
		if n := most(crowd(t, h, 20, func() int64 { return truth }), 3_600_000); n < limit || n > limit+50*truth {
			t.Errorf("%d units passed, want %d to %d", n, limit, limit+50*truth)
		}
		ds, err := h.store.Raw.Peek(t.Context(), []window.Charge{{Zone: "low_" + algorithm, Key: "all", Cost: 1, Algorithm: h.Zones[0].algorithm, Policies: h.Zones[0].policies}})
		if err != nil || ds[0].Allowed || ds[0].RetryAfter <= 0 || ds[0].RetryAfter > time.Hour {
			t.Errorf("%+v, %v", ds, err)
		}
	})
}
