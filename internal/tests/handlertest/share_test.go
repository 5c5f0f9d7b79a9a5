package handlertest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	slidingwindow "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

const share = `,"on_error":"local","share":true,"store":`

// Instances are counted from the start of the app to its stop, and limits divided.
func TestShare(t *testing.T) {
	f, store := NewFake(t, Away)
	h, ctx := New(t, OfZone(t, `"limits":[{"max":7,"window":"1h"}]`, share+store))
	value, err := ctx.App("sliding_window")
	if err != nil {
		t.Fatal(err)
	}
	app := value.(*slidingwindow.App)
	if registered, _ := f.Registered(); registered != 0 {
		t.Error("the store is asked while the configuration loads")
	}
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	Poll(t, "three instances", func() bool { return strings.Contains(Admin(t, http.MethodGet, "status", ""), `"instances":3`) })
	for i, want := range []int{204, 204, 429} {
		w := Serve(t, Get(), h)
		if w.Code != want {
			t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
		}
		if got := w.Header().Get("RateLimit"); i == 0 && !strings.Contains(got, "r=1;") {
			t.Errorf("request %d: RateLimit is %s, want r=1", i+1, got)
		}
	}
	if err := app.Stop(); err != nil {
		t.Fatal(err)
	}
	if registered, parted := f.Registered(); registered != 1 || parted != 1 {
		t.Errorf("registered %d times, left %d, want 1 and 1", registered, parted)
	}
}

// The app says whether its handlers share that do not say what on_error is.
func TestShareOfTheApp(t *testing.T) {
	_, ctx := New(t, OfZone(t, TwoAnHour, ``))
	value, err := ctx.App("sliding_window")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		app    bool
		config string
		want   bool
	}{
		{true, ``, true},
		{true, `,"share":true`, true},
		{false, `,"share":true`, true},
		{true, `,"on_error":"local"`, false},
		{true, `,"on_error":"deny"`, false},
	} {
		value.(*slidingwindow.App).Share = c.app
		config := strings.Replace(OfZone(t, TwoAnHour, c.config), ZoneName(t), ZoneName(t)+string(rune('a'+i)), 1)
		h, err := Another(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.(*slidingwindow.Handler).Share; got != c.want {
			t.Errorf("app %v, %q: share is %v, want %v", c.app, c.config, got, c.want)
		}
	}
	value.(*slidingwindow.App).OnError = "deny"
	_, err = Another(ctx, OfZone(t, TwoAnHour, `,"share":true`))
	if err == nil || !strings.Contains(err.Error(), "share and on_error deny cannot be combined") {
		t.Errorf("share without on_error where the app says deny: got %v, want an error", err)
	}
}

// A zone counts in one way: it is shared out in all of its handlers, or in none.
func TestShareInTwoHandlers(t *testing.T) {
	_, store := NewFake(t, Away)
	_, ctx := New(t, OfZone(t, TwoAnHour, share+store))
	for config, want := range map[string]bool{share + store: true, `,"store":` + store: false} {
		_, err := Another(ctx, OfZone(t, TwoAnHour, config))
		if (err == nil) != want {
			t.Errorf("%s: got %v", config, err)
		}
	}
}

// What passed while the store was away is booked in it.
func TestReturn(t *testing.T) {
	f, store := NewFake(t, Away)
	h, _ := New(t, OfZone(t, TwoAnHour, `,"store":`+store))
	for i, want := range []int{204, 204, 429, 429} {
		if w := Serve(t, Get(), h); w.Code != want {
			t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
		}
	}
	f.Become(Decides(window.Decision{Limit: 2, RetryAfter: time.Hour, ResetAfter: time.Hour}))
	Poll(t, "2 units are booked", func() bool {
		Serve(t, Get(), h)
		return f.Settled() == 2
	})
	Serve(t, Get(), h)
	if n := f.Settled(); n != 2 {
		t.Errorf("%d units were booked, want 2", n)
	}
}

// A handler's max_keys holds, though the app might have had a store of its own.
func TestMaxKeysOfHandler(t *testing.T) {
	_ = caddy.Stop() // what another test has left running may want more
	h, ctx := New(t, OfZone(t, TwoAnHour+`,"key":"{http.request.header.X-Key}"`, `,"store":{"module":"memory","max_keys":64}`))
	for i := range 2000 {
		Serve(t, Get("X-Key", strconv.Itoa(i)), h)
	}
	// Give or take one in each of 64 shards, and the one that is shared in each.
	if n := storeOf(t, ctx, "memory", `{"max_keys":64}`).(*memory.Store).Keys(); n > 200 {
		t.Errorf("got %d keys, want about 64", n)
	}
}

// storeOf returns the store that a configuration has with these options.
func storeOf(t *testing.T, ctx caddy.Context, module, options string) window.Store {
	t.Helper()
	m, err := ctx.LoadModuleByID("http.sliding_window.stores."+module, json.RawMessage(options))
	if err != nil {
		t.Fatal(err)
	}
	return m.(slidingwindow.StoreModule).Store()
}
