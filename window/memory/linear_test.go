package memory_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
)

func TestLinearizable(t *testing.T) {
	clock := windowtest.NewClock()
	windowtest.Linearizable(t, clock, nil, nil, open(t, clock))
}

func TestLinearizableHeld(t *testing.T) {
	windowtest.LinearizableHeld(t, nil, open(t, windowtest.NewClock()))
}
