package handlertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// settleBy answers a request with a status.
func settleBy(h caddyhttp.MiddlewareHandler, code int) int {
	w := httptest.NewRecorder()
	_ = AnswerWith(h, w, Get(), func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(code)
		return nil
	})
	return w.Code
}

// Settled units and settlements that fail are counted.
func TestSettledMetrics(t *testing.T) {
	admit := Decides(window.Decision{Allowed: true, Limit: 10, Remaining: 5, At: 1})
	f, store := NewFake(t, admit)
	h, ctx := New(t, OfZone(t, `"limits":[{"max":10,"window":"1h"}],"cost":3,"count_if":{"status_code":[401]}`, `,"on_error":"deny","store":`+store))
	want := func(want string) {
		t.Helper()
		Poll(t, want, func() bool { // a remote store settles in the background
			units := func(direction string) float64 {
				return Metric(t, ctx, "caddy_sliding_window_settled_units_total", "zone", ZoneName(t), "direction", direction)
			}
			failures := func(reason string) float64 {
				return Metric(t, ctx, "caddy_sliding_window_settle_errors_total", "zone", ZoneName(t), "reason", reason)
			}
			return want == fmt.Sprintf("%v kept, %v given back, %v unknown, %v failed", units("kept"), units("given_back"), failures("unknown"), failures("failed"))
		})
	}
	settleBy(h, 401)
	want("3 kept, 0 given back, 0 unknown, 0 failed")
	settleBy(h, 200)
	want("3 kept, 3 given back, 0 unknown, 0 failed")
	settleBy(h, 404)
	want("3 kept, 6 given back, 0 unknown, 0 failed")
	if f.Settled() != -6 {
		t.Errorf("the store got %d, want -6", f.Settled())
	}
	for _, failure := range []struct {
		cause error
		want  string
	}{
		{window.ErrUnknown, "3 kept, 6 given back, 1 unknown, 0 failed"},
		{window.ErrForeign, "3 kept, 6 given back, 1 unknown, 1 failed"},
	} {
		f.Become(func(ctx context.Context, charges []window.Charge) ([]window.Decision, error) {
			f.Become(func(context.Context, []window.Charge) ([]window.Decision, error) {
				return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, failure.cause)
			})
			return admit(ctx, charges)
		})
		settleBy(h, 200)
		want(failure.want)
		f.Become(admit)
	}
}

// overtaken is a store that a test decides in the place of. Others settle beside it.
type overtaken struct {
	*Fake
	decide func() window.Decision
}

// TakeInto implements engine.IntoTaker.
func (s *overtaken) TakeInto(context.Context, []window.Decision, []window.Charge) ([]window.Decision, error) {
	return []window.Decision{s.decide()}, nil
}

// A denial that a give-back has overtaken is decided on again: a client that has its answer has its unit
// back.
func TestDecidedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admitted := window.Decision{Allowed: true, Limit: 1, At: 1}
		denied := window.Decision{Limit: 1, RetryAfter: time.Hour, EffectiveWindow: time.Hour, At: 1}
		f, _ := NewFake(t, Decides(admitted))
		s := &overtaken{Fake: f}
		h, _ := New(t, OfZone(t, `"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]}`, `,"on_error":"deny","store":`+Give(t, s)))
		answer, asked := make(chan bool), 0
		s.decide = func() window.Decision {
			if asked++; asked == 2 {
				close(answer)
				synctest.Wait() // until the unit of the first request is back
				return denied
			}
			return admitted
		}
		var first sync.WaitGroup
		first.Go(func() {
			_ = AnswerWith(h, httptest.NewRecorder(), Get(), func(w http.ResponseWriter, _ *http.Request) error {
				<-answer
				w.WriteHeader(http.StatusOK)
				return nil
			})
		})
		synctest.Wait()
		if code := settleBy(h, 401); code != 401 || asked != 3 || f.Settled() != -1 {
			t.Errorf("status %d after %d decisions and %d units settled, want 401 after 3 and -1", code, asked, f.Settled())
		}
		first.Wait()
		asked, s.decide = 0, func() window.Decision { asked++; return denied }
		if code := settleBy(h, 401); code != 429 || asked != 1 {
			t.Errorf("status %d after %d decisions, want 429 after 1", code, asked)
		}
	})
}
