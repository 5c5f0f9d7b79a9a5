package slidingwindow

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// settleBy answers a request with a status.
func settleBy(h *Handler, code int, header ...string) int {
	w := httptest.NewRecorder()
	_ = answerWith(h, w, get(header...), func(w http.ResponseWriter, _ *http.Request) error {
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
	admit := decides(window.Decision{Allowed: true, Limit: 10, Remaining: 5, At: 1})
	f, store := newFake(t, admit)
	h, ctx := newHandler(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":10,"window":"1h"}],"cost":3,"count_if":{"status_code":[401]}}],"store":%s,"on_error":"deny"}`, zoneName(t), store))
	settle := func(code int) {
		settleBy(h, code)
		h.guard.settler.drain(10 * time.Second)
	}
	settle(401)
	settle(200)
	settle(404)
	if got, want := settled(t, ctx, zoneName(t)), "3 kept, 6 given back, 0 unknown, 0 failed"; got != want || f.settled != -6 {
		t.Errorf("%s, and the store got %d, want %s and -6", got, f.settled, want)
	}
	for _, cause := range []error{window.ErrUnknown, window.ErrForeign} {
		settleAfter(f, admit, cause, func() { settle(200) })
	}
	if got, want := settled(t, ctx, zoneName(t)), "3 kept, 6 given back, 1 unknown, 1 failed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// settleAfter has the store admit a request, and fail with what comes after.
func settleAfter(f *fakeStore, admit func(context.Context, []window.Charge) ([]window.Decision, error), cause error, run func()) {
	f.become(func(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
		f.decide = func(context.Context, []window.Charge) ([]window.Decision, error) {
			return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, cause)
		}
		return admit(ctx, charges)
	})
	run()
	f.become(admit)
}

// A queue that is full makes requests settle by themselves. None is dropped.
func TestSettleQueueIsFull(t *testing.T) {
	admit := decides(window.Decision{Allowed: true, Limit: 1, At: 1})
	f, store := newFake(t, admit)
	h, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}}],"store":%s,"on_error":"deny"}`, zoneName(t), store))
	const n = settleTogether + settleQueue + 50
	receipts := make([]receipt, n)
	for i := range receipts {
		r := &receipts[i]
		r.zone, r.counter = h.Zones[0], uint64(i)
		r.Charge = window.Charge{Zone: "zone", Key: "key", Cost: 1, Algorithm: window.Zset{}, Policies: h.Zones[0].policies}
		h.guard.settler.admit(r)
	}
	f.mu.Lock() // the store hangs
	h.guard.settler.settle(&receipts[0], 0)
	poll(t, "the first is on its way", func() bool {
		h.guard.settler.mu.Lock()
		defer h.guard.settler.mu.Unlock()
		return len(h.guard.settler.queue) == 0
	})
	var wg sync.WaitGroup
	for i := range receipts[1:] {
		wg.Go(func() { h.guard.settler.settle(&receipts[1+i], 0) })
	}
	poll(t, "the queue is full", func() bool {
		h.guard.settler.mu.Lock()
		defer h.guard.settler.mu.Unlock()
		return len(h.guard.settler.queue) == settleQueue
	})
	f.mu.Unlock()
	wg.Wait()
	h.guard.settler.drain(time.Minute)
	if f.settled != -n {
		t.Errorf("%d units were given back, want %d", -f.settled, n)
	}
	if h.guard.settler.inFlight.Any(0) || h.guard.unsettled.Load() != 1 {
		t.Errorf("%d receipts are not settled", h.guard.unsettled.Load()-1)
	}
}

// A denial that a give-back has overtaken is decided on again: a client that has its answer has its unit
// back.
func TestDecidedAgain(t *testing.T) {
	denied := window.Decision{Limit: 1, RetryAfter: time.Hour, EffectiveWindow: time.Hour, At: 1}
	f, store := newFake(t, nil)
	h, _ := newHandler(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}}],"store":%s,"on_error":"deny"}`, zoneName(t), store))
	flying := h.guard.settler.inFlight
	asked := 0
	f.become(func(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
		if asked++; asked == 1 {
			flying.BacksOf(flying.Counter(&charges[0])).Add(1)
			return []window.Decision{denied}, nil
		}
		return []window.Decision{{Allowed: true, Limit: 1, At: 1}}, nil
	})
	if code := settleBy(h, 401); code != 401 || asked != 2 {
		t.Errorf("status %d after %d decisions, want 401 after 2", code, asked)
	}
	f.become(decides(denied))
	before := len(f.taken)
	if code := settleBy(h, 401); code != 429 || len(f.taken)-before != 1 {
		t.Errorf("status %d after %d decisions, want 429 after 1", code, len(f.taken)-before)
	}
}
