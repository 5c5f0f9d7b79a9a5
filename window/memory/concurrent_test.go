package memory_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestConcurrent(t *testing.T) {
	for _, algo := range []window.Algorithm{window.Zset{}, window.Log{}, window.GCRA{}} {
		t.Run(algo.Name(), func(t *testing.T) {
			t.Parallel()
			s := memory.New(memory.Options{})
			defer func() { _ = s.Close() }()
			windowtest.Concurrent(t, algo, s)
		})
	}
}
