package replay_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakelog"
)

var (
	sizeLines = flag.Int("replay.lines", 100_000, "how many lines the log of TestSize has")
	sizeKeys  = flag.Int("replay.keys", 10_000, "how many keys the log of TestSize has")
)

// TestSize suggests limits by a log of some size, which comes from a generator in this process. make test-size makes it
// 100,000,000 lines with 10,000,000 keys.
func TestSize(t *testing.T) {
	const memory = 2 << 30
	in, out := io.Pipe()
	go func() {
		out.CloseWithError(fakelog.Write(out, fakelog.Options{Lines: *sizeLines, Keys: *sizeKeys, Combined: true}))
	}()
	began, heap := time.Now(), debug.SetMemoryLimit(-1)
	s, err := replay.Suggest(replay.SuggestOptions{Logs: []string{"-"}, Stdin: in, Key: "client_ip", Windows: []time.Duration{time.Second, time.Minute, time.Hour}, Top: 10, Reorder: time.Minute, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if after := debug.SetMemoryLimit(-1); after != heap {
		t.Errorf("the limit of the heap was %d, and is %d", heap, after)
	}
	if s.Keys != *sizeKeys || s.Requests != int64(*sizeLines) {
		t.Errorf("%d keys, %d requests", s.Keys, s.Requests)
	}
	peak := peakMemory(t)
	t.Logf("%d lines, %d keys: %d MiB at most, %s, %.0f lines a second with the generator, folded %v, pair %v", *sizeLines, s.Keys, peak>>20, took.Round(time.Second), float64(*sizeLines)/took.Seconds(), s.Folded, s.Pair)
	if peak > memory {
		t.Errorf("took %d MiB", peak>>20)
	}
}

// peakMemory returns how much memory this process has had at most; 0 where the system does not tell.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
