package handlertest

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// While Redis is away on_error decides: local goes on counting what was admitted before and is open, allow holds nothing, deny
// lets nothing pass. Whatever was admitted is free once, at its end, before and after Redis is back.
func TestConcurrentAway(t *testing.T) {
	for onError, want := range map[string]struct {
		first, second int // the status of two requests beside one that is open, of two
		held          float64
	}{
		"local": {http.StatusNoContent, http.StatusTooManyRequests, 2},
		"allow": {http.StatusNoContent, http.StatusNoContent, 1},
		"deny":  {http.StatusServiceUnavailable, http.StatusServiceUnavailable, 1},
	} {
		t.Run(onError, func(t *testing.T) {
			server := redistest.Start(t)
			store := `,"store":{"module":"redis","timeout":"1s","url":"redis://` + server.Addr + `"},"on_error":"` + onError + `"`
			h, ctx := New(t, OfZone(t, `"key":"{http.request.header.X-Key}","concurrent":{"max":2}`, store))
			isOpen := func() float64 { return Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)) }
			o := &open{h: h}
			before := o.begin(Get())
			server.Kill()
			during := o.begin(Get())
			if status := during.status(); status != want.first {
				t.Errorf("while it is away: status %d, want %d", status, want.first)
			}
			if n := isOpen(); n != want.held {
				t.Errorf("%v requests are open, want %v", n, want.held)
			}
			if w := Serve(t, Get(), h); w.Code != want.second {
				t.Errorf("one more: status %d, want %d", w.Code, want.second)
			}
			_ = during.end()
			_ = before.end()
			if n := isOpen(); n != 0 {
				t.Errorf("%v requests are open at the end, want 0", n)
			}
			server.Restart(t)
			Poll(t, "Redis decides", func() bool { return Serve(t, Get(), h).Code == http.StatusNoContent })
			first := o.begin(Get())
			second := o.begin(Get())
			wantPass(t, "a third, with Redis", h, false)
			_ = first.end()
			wantPass(t, "a second, with Redis", h, true)
			_ = second.end()
		})
	}
}

// status returns the status of a request: 204 if it has reached the last handler.
func (i *one) status() int {
	select {
	case <-i.begun:
		return http.StatusNoContent
	default:
		return i.Code
	}
}

// Denials by concurrent count for bans and top talkers as those of limits do, beside limits as well, once each.
func TestConcurrentStrikes(t *testing.T) {
	for name, limits := range map[string]string{"alone": "", "beside limits": `"limits":[{"max":1000,"window":"1h"}],`} {
		t.Run(name, func(t *testing.T) {
			b := startBanning(t, `{"name":"NAME",`+ofKey+limits+`"concurrent":{"max":1},"ban":{"for":"1m","after":2,"in":"10m"},"top_talkers":true}`, ``)
			it := (&open{h: b}).begin(Get("X-Key", "a"))
			b.ask("a", http.StatusTooManyRequests)
			b.ask("b", http.StatusNoContent)
			b.after(time.Second) // one denial in a second counts
			w, _ := b.ask("a", http.StatusTooManyRequests)
			if w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(), "abnormal") {
				t.Errorf("the second denial: %v, %s", w.Header(), w.Body)
			}
			w, _ = b.ask("a", http.StatusTooManyRequests)
			if w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "abnormal") {
				t.Errorf("the ban: %v, %s", w.Header(), w.Body)
			}
			_ = it.end()
			b.after(time.Minute)
			b.ask("a", http.StatusNoContent)
			if got := Admin(t, http.MethodPost, "top", `{"zone":"`+b.zone+`"}`); !strings.Contains(got, `"keys":[{"key":"a","count":3,"error":0}]`) {
				t.Errorf("top talkers: %s", got)
			}
		})
	}
}

// However requests end, never more of them are open than the limit says, and at the end all slots are free.
func TestConcurrentManyEndings(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		const most, clients, each = 5, 16, 150
		zone := ZoneName(t)
		h := two(t, `{"zones":[{"name":"`+zone+`","key":"all","limits":[{"max":1000000,"window":"1h"}],"concurrent":{"max":5}}],`+store+`}`,
			`{"zones":[{"name":"`+zone+`.later","key":"all","match":[{"header":{"X-End":["denied"]}}],"limits":[{"max":0,"window":"1h"}]}],`+store+`}`)
		var isOpen, passed, over atomic.Int64
		endings := map[string]caddyhttp.HandlerFunc{
			"denied":  nil,
			"nothing": func(http.ResponseWriter, *http.Request) error { return nil },
			"error":   func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(http.StatusBadGateway, nil) },
			"panic":   func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) },
			"body": func(w http.ResponseWriter, _ *http.Request) error {
				_, err := io.WriteString(w, "text")
				return err
			},
			"hijack": func(w http.ResponseWriter, _ *http.Request) error {
				conn, _, err := http.NewResponseController(w).Hijack()
				go func() { // after the handler has returned, perhaps
					runtime.Gosched()
					isOpen.Add(-1)
					_ = conn.Close()
					_ = conn.Close()
				}()
				return err
			},
		}
		names := slices.Sorted(maps.Keys(endings))
		var group sync.WaitGroup
		for client := range clients {
			group.Go(func() {
				random := rand.New(rand.NewPCG(44, uint64(client)))
				for range each {
					name := names[random.IntN(len(names))]
					here, there := net.Pipe()
					ctx, cancel := context.WithCancel(t.Context())
					if random.IntN(8) == 0 {
						cancel() // the client has gone by then
					}
					_ = AnswerWith(h[0], &pipe{httptest.NewRecorder(), there}, Get("X-End", name).WithContext(ctx), func(w http.ResponseWriter, r *http.Request) error {
						if isOpen.Add(1) > most {
							over.Add(1)
						}
						passed.Add(1)
						runtime.Gosched()
						if name == "denied" { // which frees the slot at once
							isOpen.Add(-1)
							return h[1].ServeHTTP(w, r, caddyhttp.HandlerFunc(endings["nothing"]))
						}
						if name != "hijack" {
							defer isOpen.Add(-1)
						}
						return endings[name](w, r)
					})
					cancel()
					_ = here.Close()
				}
			})
		}
		group.Wait()
		if passed.Load() < clients || over.Load() > 0 {
			t.Errorf("%d of %d requests passed, %d above the limit", passed.Load(), clients*each, over.Load())
		}
		Poll(t, "all slots are free", func() bool {
			var all []*one
			for range most {
				all = append(all, (&open{h: h[0]}).begin(Get()))
			}
			free := true
			for _, it := range all {
				free = free && it.status() == http.StatusNoContent
				_ = it.end()
			}
			return free
		})
	})
}
