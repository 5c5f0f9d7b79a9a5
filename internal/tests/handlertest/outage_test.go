package handlertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestOnErrorLocal(t *testing.T) {
	_, store := NewFake(t, Away)
	h, _, logs := NewObserved(t, zap.InfoLevel, OfZone(t, TwoAnHour, `,"store":`+store))
	// The third failure opens the breaker, which makes no difference here.
	for i, want := range []int{204, 204, 429, 429, 429} {
		r := Get()
		w := Serve(t, r, h)
		if w.Code != want {
			t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
		}
		if w.Header().Get("RateLimit") == "" {
			t.Errorf("request %d: no RateLimit", i+1)
		}
		if want == 429 && w.Header().Get("Retry-After") == "" {
			t.Errorf("request %d: no Retry-After", i+1)
		}
	}
	if entries := logs.All(); len(entries) > 0 {
		t.Errorf("log: got %v, want nothing", entries)
	}
}

// Handlers on one store enforce one count while it is away.
func TestOnErrorLocalIsShared(t *testing.T) {
	_, store := NewFake(t, Away)
	one, ctx := New(t, OfZone(t, TwoAnHour, `,"store":`+store))
	other, err := Another(ctx, OfZone(t, TwoAnHour, `,"store":`+store))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{204, 204, 429} {
		h := one
		if i == 1 {
			h = other
		}
		if w := Serve(t, Get(), h); w.Code != want {
			t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
		}
	}
}

func TestOnErrorAllow(t *testing.T) {
	_, store := NewFake(t, Away)
	h, _, logs := NewObserved(t, zap.InfoLevel, OfZone(t, TwoAnHour, `,"on_error":"allow","store":`+store))
	for range 5 {
		r := Get()
		w := Serve(t, r, h)
		if w.Code != http.StatusNoContent || w.Header().Get("RateLimit") != "" {
			t.Errorf("got %d, RateLimit %q, want 204 and none", w.Code, w.Header().Get("RateLimit"))
		}
		if got := Expand(r, allPlaceholders); got != "true    0 " {
			t.Errorf("placeholders: got %q, want true and nothing else", got)
		}
	}
	if entries := logs.All(); len(entries) > 0 {
		t.Errorf("log: got %v, want nothing", entries)
	}
}

// 503 is an answer and no error: Caddy logs errors of 500 and more one by one.
func TestOnErrorDeny(t *testing.T) {
	_, store := NewFake(t, Away)
	h, _, logs := NewObserved(t, zap.InfoLevel, OfZone(t, TwoAnHour, `,"on_error":"deny","status":418,"store":`+store))
	for i := range 5 {
		r := Get()
		w, err := TryServe(r, h)
		if err != nil {
			t.Errorf("request %d: got %v, want no error", i+1, err)
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("request %d: got %d, %v", i+1, w.Code, w.Header())
		}
		if body := w.Body.String(); !strings.Contains(body, "#temporary-reduced-capacity") || strings.Contains(body, ErrAway.Error()) {
			t.Errorf("request %d: got %s", i+1, body)
		}
		if got := Expand(r, allPlaceholders); got != "false    1 " {
			t.Errorf("placeholders: got %q, want false, a wait of 1 s and nothing else", got)
		}
	}
	if entries := logs.All(); len(entries) > 0 {
		t.Errorf("log: got %v, want nothing", entries)
	}
}

// Each word of on_error is decided on somewhere: a request that no store decides on is allowed, denied or refused, and
// counted so.
func TestOnErrorWords(t *testing.T) {
	want := map[control.OnError]struct {
		codes  [3]int
		counts [4]float64 // as of Outcomes
	}{
		control.OnErrorLocal: {[3]int{204, 204, 429}, [4]float64{2, 1, 0, 0}},
		control.OnErrorAllow: {[3]int{204, 204, 204}, [4]float64{0, 0, 3, 0}},
		control.OnErrorDeny:  {[3]int{503, 503, 503}, [4]float64{0, 0, 0, 3}},
	}
	for _, word := range control.OnErrors {
		if _, ok := want[word]; !ok {
			t.Errorf("on_error %s: this test does not say what requests get", word)
			continue
		}
		_, store := NewFake(t, Away)
		h, ctx := New(t, OfZone(t, TwoAnHour, `,"on_error":"`+string(word)+`","store":`+store))
		before := Outcomes(t, ctx, ZoneName(t), [4]float64{})
		var codes [3]int
		for i := range codes {
			codes[i] = Serve(t, Get(), h).Code
		}
		if counts := Outcomes(t, ctx, ZoneName(t), before); codes != want[word].codes || counts != want[word].counts {
			t.Errorf("on_error %s: got %v %v, want %v", word, codes, counts, want[word])
		}
	}
}

// A client that hangs up says nothing of the store, whatever on_error says.
func TestHangUpIsNoOutage(t *testing.T) {
	for _, word := range control.OnErrors {
		t.Run(string(word), func(t *testing.T) {
			f, store := NewFake(t, func(ctx context.Context, _ []window.Charge) ([]window.Decision, error) {
				return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, ctx.Err())
			})
			h, ctx := New(t, OfZone(t, TwoAnHour, `,"on_error":"`+string(word)+`","store":`+store))
			for range 10 {
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				_, err := TryServe(Get().WithContext(gone), h)
				var answer caddyhttp.HandlerError
				if !errors.As(err, &answer) || answer.StatusCode != 499 {
					t.Errorf("got %v, want status 499", err)
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled in it", err)
				}
			}
			if got := Metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.Name, "reason", "away"); got != 0 {
				t.Errorf("store errors: got %v, want 0", got)
			}
			f.Become(Decides(window.Decision{Allowed: true, Limit: 2}))
			if w := Serve(t, Get(), h); w.Code != http.StatusNoContent {
				t.Errorf("afterwards: got %d, want 204: the breaker is closed", w.Code)
			}
		})
	}
}

// The app says what its handlers do that do not say it.
func TestOnErrorOfTheApp(t *testing.T) {
	h, ctx := New(t, OfZone(t, TwoAnHour, ``))
	if got := h.(*slidingwindow.Handler).OnError; got != "local" {
		t.Errorf("without app: got %s, want local", got)
	}
	app, err := ctx.App("sliding_window")
	if err != nil {
		t.Fatal(err)
	}
	app.(*slidingwindow.App).OnError = "deny"
	for config, want := range map[string]control.OnError{``: "deny", `,"on_error":"allow"`: "allow"} {
		h, err := Another(ctx, OfZone(t, TwoAnHour, config))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.(*slidingwindow.Handler).OnError; got != want {
			t.Errorf("%q: got %s, want %s", config, got, want)
		}
	}
}

// After three failures the store is not asked, and it is once it is back.
func TestBreakerInFrontOfTheStore(t *testing.T) {
	f, store := NewFake(t, Away)
	h, ctx := New(t, OfZone(t, TwoAnHour, `,"on_error":"deny","store":`+store))
	for range 20 {
		Serve(t, Get(), h)
	}
	if asked := len(f.Taken()); asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
	open := func() float64 {
		return Metric(t, ctx, "caddy_sliding_window_breaker_open", "store", f.Name, "node", "")
	}
	Poll(t, "breaker_open is 1", func() bool { return open() == 1 })
	f.Become(Decides(window.Decision{Allowed: true, Limit: 2, Remaining: 1}))
	Poll(t, "breaker_open is 0", func() bool { return open() == 0 })
	Poll(t, "the store decides", func() bool {
		w, _ := TryServe(Get(), h)
		return w.Code == http.StatusNoContent
	})
	if got := Metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.Name, "reason", "away"); got < 20 {
		t.Errorf("store errors: got %v, want 20 or more", got)
	}
}

// An error that is the plugin's own fault is no outage.
func TestInvalidChargeIsNoOutage(t *testing.T) {
	for _, word := range []string{"local", "allow", "deny"} {
		t.Run(word, func(t *testing.T) {
			_, store := NewFake(t, func(context.Context, []window.Charge) ([]window.Decision, error) {
				return nil, window.ErrInvalid
			})
			h, _ := New(t, OfZone(t, TwoAnHour, `,"on_error":"`+word+`","store":`+store))
			w, err := TryServe(Get(), h)
			if word == "local" {
				if err != nil || w.Code != http.StatusNoContent {
					t.Errorf("got %d, %v, want 204", w.Code, err)
				}
				return
			}
			var answer caddyhttp.HandlerError
			if !errors.As(err, &answer) || answer.StatusCode != http.StatusInternalServerError {
				t.Errorf("got %v, want status 500", err)
			}
		})
	}
}

// Stores that differ in no more than a password have one name: what is said of the one
// stays true when the other comes back, or is gone.
func TestBreakersOfOneName(t *testing.T) {
	store := func(t *testing.T) (f *Fake, h caddyhttp.MiddlewareHandler, open func() float64) {
		f, config := NewFake(t, Away)
		f.Name = "fakes of one name"
		h, ctx := New(t, OfZone(t, TwoAnHour, `,"on_error":"deny","store":`+config))
		return f, h, func() float64 {
			return Metric(t, ctx, "caddy_sliding_window_breaker_open", "store", f.Name, "node", "")
		}
	}
	f, h, open := store(t)
	ask := func(h caddyhttp.MiddlewareHandler) {
		for range 3 {
			Serve(t, Get(), h)
		}
	}
	ask(h)
	t.Run("other", func(t *testing.T) {
		_, h, _ := store(t)
		ask(h)
		Poll(t, "breaker_open is 2", func() bool { return open() == 2 })
	})
	if got := open(); got != 1 {
		t.Errorf("once the other is gone: breaker_open is %v, want 1", got)
	}
	f.Become(Decides(window.Decision{Allowed: true, Limit: 2, Remaining: 1}))
	Poll(t, "breaker_open is 0", func() bool { return open() == 0 })
}

// Stores of one name share counts: what one has let pass while it is away counts
// for the other, as for one with another timeout that a reload brings.
func TestOnErrorLocalOfOneName(t *testing.T) {
	handler := func(t *testing.T) caddyhttp.MiddlewareHandler {
		f, config := NewFake(t, Away)
		f.Name = "fakes that share counts"
		h, _ := New(t, `{"zones":[{"name":"shared",`+TwoAnHour+`}],"store":`+config+`}`)
		return h
	}
	want := func(t *testing.T, h caddyhttp.MiddlewareHandler, codes ...int) {
		t.Helper()
		for i, code := range codes {
			if w := Serve(t, Get(), h); w.Code != code {
				t.Errorf("request %d: got %d, want %d", i+1, w.Code, code)
			}
		}
	}
	old := handler(t)
	want(t, old, 204)
	t.Run("reloaded", func(t *testing.T) { want(t, handler(t), 204, 429) })
	want(t, old, 429)
}

// Counts end with the last store of their name.
func TestOnErrorLocalEnds(t *testing.T) {
	for range 2 {
		t.Run("away", func(t *testing.T) {
			f, config := NewFake(t, Away)
			f.Name = "fakes that end"
			h, _ := New(t, `{"zones":[{"name":"ends","limits":[{"max":1,"window":"1h"}]}],"store":`+config+`}`)
			if w := Serve(t, Get(), h); w.Code != 204 {
				t.Errorf("got %d, want 204", w.Code)
			}
		})
	}
}

// The name of a store is a label of metrics, which has to be text.
func TestStoreNameIsNoText(t *testing.T) {
	f, store := NewFake(t, Away)
	f.Name = "fake \xff"
	h, _ := New(t, OfZone(t, TwoAnHour, `,"store":`+store))
	if w := Serve(t, Get(), h); w.Code != 204 {
		t.Errorf("status %d, want 204", w.Code)
	}
}
