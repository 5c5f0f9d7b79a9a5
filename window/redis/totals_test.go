package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func held(key string, limit int64) window.Charge {
	return window.Charge{Zone: "z", Key: key, Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: limit, Window: 15 * time.Second}}}
}

func TestTotalsTwoProcesses(t *testing.T) {
	server := redistest.Start(t)
	open := func() *redis.Store {
		s := redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: time.Second})
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	a, b := open(), open()
	ctx := context.Background()
	take := func(s *redis.Store, want bool) {
		t.Helper()
		ds, err := s.Take(ctx, []window.Charge{held("k", 3)})
		if err != nil || ds[0].Allowed != want {
			t.Fatalf("take: %+v %v", ds, err)
		}
	}
	take(a, true)
	take(a, true)
	take(b, true)
	take(b, false)
	_ = a.GiveBack(ctx, held("k", 3), 0, 1)
	take(a, true)
	take(a, false)
	totals, err := a.Engine().(engine.TotalsLister).Totals(ctx, held("k", 3))
	t.Logf("%+v %v", totals, err)
	_ = a.GiveBack(ctx, held("k", 3), 0, 1)
	time.Sleep(100 * time.Millisecond)
	take(b, true)
	_ = b.Close()
	take(a, true)
	take(a, true)
	take(a, false)
}
