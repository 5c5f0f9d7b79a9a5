package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/httplimit"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func ExampleMiddleware() {
	store := memory.New(memory.Options{Now: func() int64 { return 1_800_000_000_000 }}) // leave Now out
	defer func() { _ = store.Close() }()
	limiter, err := window.NewLimiter(store, "api", window.Log{}, window.Policy{Limit: 1, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	server := httplimit.Middleware{Limiter: limiter}.Wrap(api)
	for range 2 {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit"))
		fmt.Println(w.Body)
	}
	// Output:
	// 200 "api";q=1;w=60 "api";r=0;t=60
	// hello
	// 429 "api";q=1;w=60 "api";r=0;t=60
	// {"detail":"The limit of requests is reached.","retry_after":60,"status":429,"title":"Rate limit exceeded","type":"https://iana.org/assignments/http-problem-types#quota-exceeded","violated-policies":["api"]}
}

// away is a store that does not answer.
type away struct{ window.Store }

func (away) Take(context.Context, []window.Charge) ([]window.Decision, error) {
	return nil, window.ErrUnavailable
}

func TestMiddleware(t *testing.T) {
	store := memory.New(memory.Options{SweepInterval: -1})
	byToken := func(r *http.Request) (string, bool) {
		token := r.Header.Get("Token")
		return token, token != ""
	}
	for _, c := range []struct {
		name    string
		store   window.Store
		onError window.OnError
		token   string
		want    []int
		fields  bool
	}{
		{"a key", store, 0, "a", []int{200, 429}, true},
		{"another key", store, 0, "b", []int{200, 429}, true},
		{"no key", store, 0, "", []int{200, 200}, false},
		{"away", away{store}, 0, "a", []int{503}, false},
		{"away, allow", away{store}, window.Allow, "a", []int{200, 200}, false},
		{"away, deny", away{store}, window.Deny, "a", []int{503}, false},
	} {
		limiter, err := window.NewLimiter(c.store, "api", window.Log{}, window.Policy{Limit: 1, Window: time.Hour}, window.Policy{Limit: 5, Window: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		limiter.OnError = c.onError
		h := httplimit.Middleware{Limiter: limiter, KeyFunc: byToken}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i, want := range c.want {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Token", c.token)
			h.ServeHTTP(w, r)
			fields := strings.HasPrefix(w.Header().Get("RateLimit"), `"api:1h";r=0;t=3600, "api:24h";r=4;`)
			if w.Code != want || fields != c.fields || (w.Header().Get("Retry-After") == "") != (want == 200) {
				t.Errorf("%s, request %d: %d, %v; want %d", c.name, i, w.Code, w.Header(), want)
			}
		}
	}
}

func TestRemoteIP(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "@": "@"} {
		if got, ok := httplimit.RemoteIP(&http.Request{RemoteAddr: address}); got != want || !ok {
			t.Errorf("RemoteIP of %s = %s", address, got)
		}
	}
}
