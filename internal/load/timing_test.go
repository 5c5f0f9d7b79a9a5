package load

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// What limiters wait for their stores, and the time that a client takes to send its body, are left out.
func TestLatencyLeavesOut(t *testing.T) {
	const pause = 50 * time.Millisecond
	o := Options{Floor: 0.3, Ceiling: 1, Recover: time.Minute}
	o.Ranges[Latency] = Range{0.2, 1}
	limits := AcquireLimits("memory", t.Name(), o, window.Zset{}, []window.Policy{{Limit: 100_000, Window: time.Minute}})
	defer limits.Release()
	tm := &timing{start: uptime.Now() - 10*pause}
	if took, ok := tm.took(); !ok || took < 10*pause {
		t.Errorf("took %v, %v", took, ok)
	}
	tm.outer = &timing{start: tm.start}
	WaitedSince(uptime.Now()-9*pause, map[string]any{timingVar: tm})
	for _, one := range []*timing{tm, tm.outer} {
		if took, ok := one.took(); !ok || took < pause || took > 8*pause {
			t.Errorf("took %v, %v, want the store left out", took, ok)
		}
	}
	tm.body = &timedBody{ReadCloser: io.NopCloser(strings.NewReader("body")), timing: tm, length: 4}
	if _, ok := tm.took(); ok {
		t.Error("a body is under way, and the time is known")
	}
	if _, err := tm.body.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if took, ok := tm.took(); !ok || took >= pause*8 || took < 0 {
		t.Errorf("took %v, %v from the end of the body", took, ok)
	}
	if Waiting() == 0 {
		t.Error("nobody measures, and a zone does")
	}
}
