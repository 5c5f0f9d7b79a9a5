package slidingwindow

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
)

// StandInLoads has zones that are provisioned until the end of the test take their samples from these sensors, and
// only when step is called, which goes on to the time of the next sample.
func StandInLoads(t testing.TB, cpu, memory load.Sensor) (step func(n int)) {
	t.Helper()
	before, now := loads, time.Unix(1_800_000_000, 0)
	own := &load.Sampler{CPU: cpu, Memory: memory, Warn: before.Warn, Manual: true}
	loads = own
	t.Cleanup(func() { loads = before })
	return func(n int) {
		for range n {
			own.Step(now)
			now = now.Add(load.Interval)
		}
	}
}
