package memory_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

func TestConcurrent(t *testing.T) {
	s := memory.New(memory.Options{})
	defer func() { _ = s.Close() }()
	windowtest.Concurrent(t, window.Zset{}, s)
	windowtest.Concurrent(t, window.Log{}, s)
}
