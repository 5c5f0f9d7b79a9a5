package redis_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestLinearizableHeld asks one process, and two that share a server.
func TestLinearizableHeld(t *testing.T) {
	for name, processes := range map[string]int{"one": 1, "two": 2} {
		t.Run(name, func(t *testing.T) {
			var stores []window.Store
			prefix := freshPrefix("linear held")
			for range processes {
				stores = append(stores, newStore(t, redis.Options{Addresses: []string{server.Addr}, Prefix: prefix, Timeout: 5 * time.Second}))
			}
			lister := stores[0].(*redis.Store).Engine().(engine.TotalsLister)
			windowtest.LinearizableHeld(t, func(c window.Charge, units int64) {
				eventually(t, patience, "totals", func() bool {
					all, err := lister.Totals(t.Context(), c)
					told := int64(0)
					for _, own := range all {
						told += own.Units
					}
					return err == nil && told == units
				})
			}, stores...)
		})
	}
}
