package storeclock

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
)

// The clock is that of the process until the store has told its time. Then a step of the process's time of day changes nothing.
func TestClock(t *testing.T) {
	wall := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &Clock{Wall: func() time.Time { return wall }}
	if got := c.Now(); !got.Equal(wall) {
		t.Errorf("before it knows the store's: got %s, want %s", got, wall)
	}
	at, now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), uptime.Now()
	if moved := c.Learn(at, now-3*time.Second, now-time.Second); moved < at.Sub(wall) || moved > at.Sub(wall)+time.Minute {
		t.Errorf("moved by %s, want %s and the two seconds since", moved, at.Sub(wall))
	}
	wall = wall.Add(time.Hour)
	if got := c.Now().Sub(at); got < 2*time.Second || got > time.Minute {
		t.Errorf("got %s after what the store said, want the two seconds since half the round trip", got)
	}
	if got := c.Milli() - at.UnixMilli(); got < 2000 || got > 60_000 {
		t.Errorf("got %d ms after what the store said", got)
	}
}

// Stores of one name have one clock, and a nil Clock is that of the process.
func TestOf(t *testing.T) {
	if Of(t.Name()) != Of(t.Name()) || Of(t.Name()) == Of("other") || Of("\xff") != Of("\uFFFD") {
		t.Error("the clocks are not those of the names")
	}
	before := time.Now()
	if got := (*Clock)(nil).Now(); got.Before(before) || got.After(time.Now()) {
		t.Errorf("got %s", got)
	}
}

// What ends by the clock of a store reads no other one.
func TestNoOtherClock(t *testing.T) {
	other := regexp.MustCompile(`\btime\.(Now|Since|Until)\b`)
	for _, pattern := range []string{
		"../../overrides/*.go", "../../overrides/overridebook/*.go", "../../enforce/*.go", "../../running/*.go",
		"../../zone/*.go", "../../request/inspect.go", "../../adminapi/overrides.go", "../../adminapi/enforce.go", "../../adminapi/record.go",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if found := other.Find(text); found != nil && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s calls %s", name, found)
			}
		}
	}
}
