package cli

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
)

func TestProgress(t *testing.T) {
	for want, at := range map[string]accesslog.Progress{
		"100 of 400 MB, 50000 lines/s, 6s left": {Bytes: 100e6, Total: 400e6, Lines: 100_000},
		"400 of 400 MB, 50000 lines/s":          {Bytes: 400e6, Total: 400e6, Lines: 100_000},
		"7 MB, 1000 lines/s":                    {Bytes: 7e6, Lines: 2000}, // of stdin
	} {
		if got := progressText(at, 2*time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
