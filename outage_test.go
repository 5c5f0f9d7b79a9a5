package slidingwindow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

const twoAnHour = `"limits":[{"max":2,"window":"1h"}]`

func TestOnErrorLocal(t *testing.T) {
	_, store := newFake(t, away)
	h, _ := newHandler(t, zoneHandler(t, twoAnHour, `,"store":`+store))
	logs := observe(h, zap.NewAtomicLevelAt(zap.InfoLevel))
	// The third failure opens the breaker, which makes no difference here.
	for i, want := range []int{204, 204, 429, 429, 429} {
		r := get()
		w := serve(t, r, h)
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
	_, store := newFake(t, away)
	one, ctx := newHandler(t, zoneHandler(t, twoAnHour, `,"store":`+store))
	loaded, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(zoneHandler(t, twoAnHour, `,"store":`+store)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{204, 204, 429} {
		h := one
		if i == 1 {
			h = loaded.(*Handler)
		}
		if w := serve(t, get(), h); w.Code != want {
			t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
		}
	}
}

func TestOnErrorAllow(t *testing.T) {
	_, store := newFake(t, away)
	h, _ := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"allow","store":`+store))
	logs := observe(h, zap.NewAtomicLevelAt(zap.InfoLevel))
	for range 5 {
		r := get()
		w := serve(t, r, h)
		if w.Code != http.StatusNoContent || w.Header().Get("RateLimit") != "" {
			t.Errorf("got %d, RateLimit %q, want 204 and none", w.Code, w.Header().Get("RateLimit"))
		}
		if got := expand(r, allPlaceholders); got != "true    0 " {
			t.Errorf("placeholders: got %q, want true and nothing else", got)
		}
	}
	if entries := logs.All(); len(entries) > 0 {
		t.Errorf("log: got %v, want nothing", entries)
	}
}

// 503 is an answer and no error: Caddy logs errors of 500 and more one by one.
func TestOnErrorDeny(t *testing.T) {
	_, store := newFake(t, away)
	h, _ := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"deny","status":418,"store":`+store))
	logs := observe(h, zap.NewAtomicLevelAt(zap.InfoLevel))
	for i := range 5 {
		r := get()
		w, err := tryServe(r, h)
		if err != nil {
			t.Errorf("request %d: got %v, want no error", i+1, err)
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("request %d: got %d, %v", i+1, w.Code, w.Header())
		}
		if body := w.Body.String(); !strings.Contains(body, "#temporary-reduced-capacity") || strings.Contains(body, errAway.Error()) {
			t.Errorf("request %d: got %s", i+1, body)
		}
		if got := expand(r, allPlaceholders); got != "false    1 " {
			t.Errorf("placeholders: got %q, want false, a wait of 1 s and nothing else", got)
		}
	}
	if entries := logs.All(); len(entries) > 0 {
		t.Errorf("log: got %v, want nothing", entries)
	}
}

// A client that hangs up says nothing of the store, whatever on_error says.
func TestHangUpIsNoOutage(t *testing.T) {
	for _, word := range []string{"local", "allow", "deny"} {
		t.Run(word, func(t *testing.T) {
			f, store := newFake(t, func(ctx context.Context, _ []window.Charge) ([]window.Decision, error) {
				return nil, fmt.Errorf("%w: %w", window.ErrUnavailable, ctx.Err())
			})
			h, ctx := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"`+word+`","store":`+store))
			for range 10 {
				gone, cancel := context.WithCancel(context.Background())
				cancel()
				_, err := tryServe(get().WithContext(gone), h)
				var answer caddyhttp.HandlerError
				if !errors.As(err, &answer) || answer.StatusCode != 499 {
					t.Errorf("got %v, want status 499", err)
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled in it", err)
				}
			}
			if got := metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.name, "reason", "away"); got != 0 {
				t.Errorf("store errors: got %v, want 0", got)
			}
			f.become(decides(window.Decision{Allowed: true, Limit: 2}))
			if w := serve(t, get(), h); w.Code != http.StatusNoContent {
				t.Errorf("afterwards: got %d, want 204: the breaker is closed", w.Code)
			}
		})
	}
}

// The app says what its handlers do that do not say it.
func TestOnErrorOfTheApp(t *testing.T) {
	h, ctx := newHandler(t, zoneHandler(t, twoAnHour, ``))
	if h.OnError != onErrorLocal {
		t.Errorf("without app: got %s, want local", h.OnError)
	}
	app, err := ctx.App("sliding_window")
	if err != nil {
		t.Fatal(err)
	}
	app.(*App).OnError = onErrorDeny
	for config, want := range map[string]string{``: "deny", `,"on_error":"allow"`: "allow"} {
		h, err := ctx.LoadModuleByID("http.handlers.sliding_window", json.RawMessage(zoneHandler(t, twoAnHour, config)))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.(*Handler).OnError; got != want {
			t.Errorf("%q: got %s, want %s", config, got, want)
		}
	}
}

// After three failures the store is not asked, and it is once it is back.
func TestBreakerInFrontOfTheStore(t *testing.T) {
	f, store := newFake(t, away)
	h, ctx := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"deny","store":`+store))
	for range 20 {
		serve(t, get(), h)
	}
	f.mu.Lock()
	asked := len(f.taken)
	f.mu.Unlock()
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
	open := func() float64 {
		return metric(t, ctx, "caddy_sliding_window_breaker_open", "store", f.name, "node", "")
	}
	poll(t, "breaker_open is 1", func() bool { return open() == 1 })
	f.become(decides(window.Decision{Allowed: true, Limit: 2, Remaining: 1}))
	poll(t, "breaker_open is 0", func() bool { return open() == 0 })
	poll(t, "the store decides", func() bool {
		w, _ := tryServe(get(), h)
		return w.Code == http.StatusNoContent
	})
	if got := metric(t, ctx, "caddy_sliding_window_store_errors_total", "store", f.name, "reason", "away"); got < 20 {
		t.Errorf("store errors: got %v, want 20 or more", got)
	}
}

// An error that is the plugin's own fault is no outage.
func TestInvalidChargeIsNoOutage(t *testing.T) {
	for _, word := range []string{"local", "allow", "deny"} {
		t.Run(word, func(t *testing.T) {
			_, store := newFake(t, func(context.Context, []window.Charge) ([]window.Decision, error) {
				return nil, window.ErrInvalid
			})
			h, _ := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"`+word+`","store":`+store))
			w, err := tryServe(get(), h)
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

// poll waits for what another goroutine does.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// Stores that differ in no more than a password have one name: what is said of the one
// stays true when the other comes back, or is gone.
func TestBreakersOfOneName(t *testing.T) {
	store := func(t *testing.T) (f *fakeStore, h *Handler, open func() float64) {
		f, config := newFake(t, away)
		f.name = "fakes of one name"
		h, ctx := newHandler(t, zoneHandler(t, twoAnHour, `,"on_error":"deny","store":`+config))
		return f, h, func() float64 {
			return metric(t, ctx, "caddy_sliding_window_breaker_open", "store", f.name, "node", "")
		}
	}
	f, h, open := store(t)
	ask := func(h *Handler) {
		for range 3 {
			serve(t, get(), h)
		}
	}
	ask(h)
	t.Run("other", func(t *testing.T) {
		_, h, _ := store(t)
		ask(h)
		poll(t, "breaker_open is 2", func() bool { return open() == 2 })
	})
	if got := open(); got != 1 {
		t.Errorf("once the other is gone: breaker_open is %v, want 1", got)
	}
	f.become(decides(window.Decision{Allowed: true, Limit: 2, Remaining: 1}))
	poll(t, "breaker_open is 0", func() bool { return open() == 0 })
}

// Stores of one name share counts: what one has let pass while it is away counts
// for the other, as for one with another timeout that a reload brings.
func TestOnErrorLocalOfOneName(t *testing.T) {
	handler := func(t *testing.T) *Handler {
		f, config := newFake(t, away)
		f.name = "fakes that share counts"
		h, _ := newHandler(t, `{"zones":[{"name":"shared",`+twoAnHour+`}],"store":`+config+`}`)
		return h
	}
	want := func(t *testing.T, h *Handler, codes ...int) {
		t.Helper()
		for i, code := range codes {
			if w := serve(t, get(), h); w.Code != code {
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
			f, config := newFake(t, away)
			f.name = "fakes that end"
			h, _ := newHandler(t, `{"zones":[{"name":"ends","limits":[{"max":1,"window":"1h"}]}],"store":`+config+`}`)
			if w := serve(t, get(), h); w.Code != 204 {
				t.Errorf("got %d, want 204", w.Code)
			}
		})
	}
}

// The name of a store is a label of metrics, which has to be text.
func TestStoreNameIsNoText(t *testing.T) {
	f, store := newFake(t, away)
	f.name = "fake \xff"
	h, _ := newHandler(t, zoneHandler(t, twoAnHour, `,"store":`+store))
	if w := serve(t, get(), h); w.Code != 204 {
		t.Errorf("status %d, want 204", w.Code)
	}
}
