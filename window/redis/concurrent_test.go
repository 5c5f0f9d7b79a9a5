package redis_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

func TestConcurrent(t *testing.T) {
	o := redis.Options{Prefix: "concurrent"}
	windowtest.Concurrent(t, window.Zset{}, newStore(t, o), newStore(t, o))
	windowtest.Concurrent(t, window.Log{}, newStore(t, o), newStore(t, o))
}
