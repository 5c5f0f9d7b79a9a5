package redis_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

func TestConcurrent(t *testing.T) {
	for _, algo := range []window.Algorithm{window.Zset{}, window.Stream{}} {
		t.Run(algo.Name(), func(t *testing.T) {
			t.Parallel()
			o := redis.Options{Prefix: "concurrent"}
			windowtest.Concurrent(t, algo, newStore(t, o), newStore(t, o))
		})
	}
}
