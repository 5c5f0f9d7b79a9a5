package redis_test

import (
	"fmt"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func TestConcurrent(t *testing.T) {
	for _, algo := range []window.Algorithm{window.Zset{}, window.Log{}, window.GCRA{}, window.GCRA{Burst: 10}, window.Stream{}} {
		t.Run(fmt.Sprintf("%T%+[1]v", algo), func(t *testing.T) {
			t.Parallel()
			o := redis.Options{Prefix: fmt.Sprintf("concurrent %+v", algo)}
			// One that remembers denials, and one that puts the script to the test.
			windowtest.Concurrent(t, algo, newStore(t, o), redis.AskAlways(newStore(t, o)))
		})
	}
	t.Run("packed", func(t *testing.T) {
		t.Parallel()
		o := redis.Options{Prefix: "concurrent packed"}
		windowtest.Concurrent(t, window.GCRA{}, windowtest.Packed(newStore(t, o)), windowtest.Packed(redis.AskAlways(newStore(t, o))))
	})
}
