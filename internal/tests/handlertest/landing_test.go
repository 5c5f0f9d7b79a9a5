package handlertest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// slowBacks is a remote store that denies requests of two units, and takes a while to take units back.
type slowBacks struct {
	window.Store // none: what a handler does not use panics
	name         string
	asked        atomic.Int64 // for two units
}

func (s *slowBacks) Take(_ context.Context, charges []window.Charge) ([]window.Decision, error) {
	two := charges[0].Cost == 2
	if two {
		s.asked.Add(1)
	}
	var ds []window.Decision
	for range charges {
		ds = append(ds, window.Decision{Allowed: !two, Limit: 100, RetryAfter: time.Minute})
	}
	return ds, nil
}

func (s *slowBacks) SettleBatch(_ context.Context, all []engine.Settlement) []error {
	time.Sleep(30 * time.Millisecond)
	return make([]error, len(all))
}

func (*slowBacks) Ping(context.Context) error { return nil }
func (*slowBacks) Close() error               { return nil }
func (s *slowBacks) String() string           { return s.name }

// While units come back all the time, a denied request waits for those that were on their way when it was denied, with one
// bound for all its zones, and asks the store once more.
func TestDeniedRequestWaitsOnceForUnits(t *testing.T) {
	const zone = `{"name":"%s.%d","key":"all","cost":"{http.request.header.X-Cost}","limits":[{"max":100,"window":"1m"}],"count_if":{"status_code":[401]}}`
	for _, zones := range []int{1, 3} {
		t.Run(fmt.Sprint(zones), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowBacks{name: t.Name()}
				config := ""
				for i := range zones {
					config += fmt.Sprintf(","+zone, ZoneName(t), i)
				}
				h, ctx := New(t, fmt.Sprintf(`{"zones":[%s],"store":%s}`, config[1:], Give(t, s)))
				Start(t, ctx)
				var all sync.WaitGroup
				end := make(chan struct{})
				all.Go(func() {
					for {
						select {
						case <-end:
							return
						case <-time.After(5 * time.Millisecond):
							all.Go(func() { _ = AnswerWith(h, httptest.NewRecorder(), Get("X-Cost", "1"), answers(200, "")) })
						}
					}
				})
				time.Sleep(time.Second)
				from := time.Now()
				w := httptest.NewRecorder()
				_ = AnswerWith(h, w, Get("X-Cost", "2"), answers(200, ""))
				took, asked := time.Since(from), s.asked.Load()
				close(end)
				all.Wait()
				t.Logf("waited %v, asked %d times", took, asked)
				if took == 0 || took > 250*time.Millisecond || asked != 2 {
					t.Errorf("waited %v and asked %d times, want 250ms at most and 2", took, asked)
				}
			})
		})
	}
}
