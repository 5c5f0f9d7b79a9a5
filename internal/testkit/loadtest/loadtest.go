// Package loadtest has zones of a test follow a load that the test sets.
package loadtest

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
)

// StandIn makes zones that are provisioned until the end of the test take their samples from these sensors, and
// only when step is called, which goes on to the time of the next sample.
func StandIn(t testing.TB, cpu, memory load.Sensor) (step func(n int)) {
	t.Helper()
	before, now := load.Process, time.Unix(1_800_000_000, 0)
	own := &load.Sampler{CPU: cpu, Memory: memory, Warn: before.Warn, Manual: true}
	load.Process = own
	t.Cleanup(func() { load.Process = before })
	return func(n int) {
		for range n {
			own.Step(now)
			now = now.Add(load.Interval)
		}
	}
}
