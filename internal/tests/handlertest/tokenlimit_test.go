package handlertest

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

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// stampedMemory and stampedRedis are stores that tell requests when they were decided on.
type (
	stampedMemory struct{ *memory.Store }
	stampedRedis  struct{ remoteStore }
	remoteStore   interface {
		window.Store
		engine.IntoTaker
		engine.Pinger
		engine.Holder
		engine.BatchSettler
	}
)

// TakeInto implements engine.IntoTaker.
func (s stampedMemory) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	ds, err := s.Store.TakeInto(ctx, room, charges)
	return stamp(ctx, ds, err)
}

// TakeInto implements engine.IntoTaker.
func (s stampedRedis) TakeInto(ctx context.Context, room []window.Decision, charges []window.Charge) ([]window.Decision, error) {
	ds, err := s.remoteStore.TakeInto(ctx, room, charges)
	return stamp(ctx, ds, err)
}

// decidedAt is the key of the time, in the context of a request.
type decidedAt struct{}

func stamp(ctx context.Context, ds []window.Decision, err error) ([]window.Decision, error) {
	if at, ok := ctx.Value(decidedAt{}).(*int64); ok && err == nil {
		*at = ds[0].At
	}
	return ds, err
}

// booked is what an answer cost, from the time at which its request was decided on.
type booked struct{ at, units int64 }

// crowd lets 50 clients ask a handler that reserves some units, and answers them at random times with a
// cost. It ends when each client has been denied as often as it asks for, and returns what was booked.
func crowd(t *testing.T, h caddyhttp.MiddlewareHandler, denials int, cost func() int64) []booked {
	t.Helper()
	var mu sync.Mutex
	var all []booked
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for denied := 0; denied < denials; {
				one, w := booked{units: cost()}, httptest.NewRecorder()
				r := Get().WithContext(context.WithValue(t.Context(), decidedAt{}, &one.at))
				_ = AnswerWith(h, w, r, func(w http.ResponseWriter, r *http.Request) error {
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
				if one.at == 0 {
					t.Errorf("status %d, and the store has not decided", w.Code)
					return
				}
			}
		})
	}
	wg.Wait()
	return all
}

// tokenZones runs a test with each store and some algorithms.
func tokenZones(t *testing.T, run func(t *testing.T, algorithm, store string)) {
	address := redistest.Start(t).Addr
	for name, open := range map[string]func() window.Store{
		"memory": func() window.Store { return stampedMemory{memory.New(memory.Options{})} },
		"redis": func() window.Store {
			return stampedRedis{redis.New(redis.Options{Addresses: []string{address}, Timeout: 10 * time.Second}).Engine().(remoteStore)}
		},
	} {
		for _, algorithm := range []string{"zset", "log", "stream", "slices"} {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				store := open()
				t.Cleanup(func() { _ = store.Close() })
				run(t, algorithm, Give(t, store))
			})
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
		long, _ := New(t, fmt.Sprintf(config, "hold", algorithm, limit, "1h", estimate, algorithm, store))
		all := crowd(t, long, 20, cost)
		if n := most(all, 3_600_000); n > limit || n < limit*9/10 {
			t.Errorf("%d units passed, want at most %d and 90 %% of it", n, limit)
		}
		short, _ := New(t, fmt.Sprintf(config, "hold_short", algorithm, limit, "1s", estimate, algorithm, store))
		if n := most(crowd(t, short, 400, cost), 1000); n > limit {
			t.Errorf("%d units passed in one window, want at most %d", n, limit)
		}
	})
}

// 50 clients with an estimate of 1: what passes above the limit was in flight when the limit was reached.
func TestTokenLimitWithLowEstimates(t *testing.T) {
	tokenZones(t, func(t *testing.T, algorithm, store string) {
		const limit, truth = 100_000, 500
		zone := "low_" + algorithm
		h, ctx := New(t, fmt.Sprintf(`{"zones":[{"name":%q,"key":"all","limits":[{"max":%d,"window":"1h"}],"algorithm":{"name":%q},"settle":{"usage":"openai"}}],"store":%s}`, zone, limit, algorithm, store))
		Start(t, ctx)
		if n := most(crowd(t, h, 20, func() int64 { return truth }), 3_600_000); n < limit || n > limit+50*truth {
			t.Errorf("%d units passed, want %d to %d", n, limit, limit+50*truth)
		}
		i := inspect(t, zone)
		if wait := i.Limits[0].RetryAfter; i.Passes() || wait == nil || *wait <= 0 || *wait > time.Hour.Seconds() {
			t.Errorf("%+v", i)
		}
	})
}
