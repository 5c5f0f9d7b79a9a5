package alert

import (
	"strconv"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// seenCases are requests as a zone sees them. The keys are many, as in a flood.
func seenCases(tb testing.TB) (s Recorder, cases map[string]func(i int)) {
	h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: "memory"}, Zone: "seen"})
	tb.Cleanup(h.Release)
	s = NewRecorder(h, true, true)
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = "client " + strconv.Itoa(i)
	}
	allowedUnits, deniedUnits, failedUnits := metrics.OutcomeOf("seen", "allowed").Units, metrics.OutcomeOf("seen", "denied").Units, metrics.OutcomeOf("seen", "failed_closed").Units
	allowed, denied := []window.Decision{{Allowed: true, Limit: 10, Remaining: 1}}, []window.Decision{{Limit: 10}}
	return s, map[string]func(int){
		"allowed": func(int) { allowedUnits.Add(1); s.Passed(allowed) },
		"denied": func(i int) {
			deniedUnits.Add(1)
			s.Denied(&window.Charge{Key: keys[i%len(keys)]}, denied)
		},
		"failed": func(i int) {
			failedUnits.Add(1)
			s.Failed(&window.Charge{Key: keys[i%len(keys)]}, false)
		},
	}
}

func TestSeenAllocatesNothing(t *testing.T) {
	_, cases := seenCases(t)
	for name, see := range cases {
		i := 0
		if n := testing.AllocsPerRun(10_000, func() { i++; see(i) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkSeen measures what metrics, alerts and summaries add to a request beyond decisions_total.
func BenchmarkSeen(b *testing.B) {
	_, cases := seenCases(b)
	for name, see := range cases {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					see(i)
				}
			})
		})
	}
}
