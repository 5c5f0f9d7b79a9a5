package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { windowtest.Exercise(t, open) }

func open(t *testing.T, clock *windowtest.Clock) window.Store {
	s := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	t.Cleanup(func() { _ = s.Close() })
	return s
}
