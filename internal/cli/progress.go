package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
)

// progressInterval is how often a terminal shows how far a log is read.
const progressInterval = 500 * time.Millisecond

// progress shows on a terminal how far a log is read.
type progress struct {
	out         io.Writer // nil: not a terminal
	start, last time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{start: time.Now(), last: time.Now()}
	if isTerminal(w) {
		p.out = w
	}
	return p
}

// show shows it, if it is time.
func (p *progress) show(at accesslog.Progress) {
	if p.out == nil || time.Since(p.last) < progressInterval {
		return
	}
	p.last = time.Now()
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", progressText(at, time.Since(p.start)))
}

// end takes it off the terminal.
func (p *progress) end() {
	if p.out != nil {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// progressText says how far a log is read after a time: the bytes, the speed, and the time that is left.
func progressText(at accesslog.Progress, took time.Duration) string {
	const mega = 1e6
	text := fmt.Sprintf("%.0f MB", float64(at.Bytes)/mega)
	if at.Total > 0 {
		text = fmt.Sprintf("%.0f of %.0f MB", float64(at.Bytes)/mega, float64(at.Total)/mega)
	}
	text += fmt.Sprintf(", %.0f lines/s", float64(at.Lines)/max(took.Seconds(), 1e-3))
	if at.Total > at.Bytes && at.Bytes > 0 {
		left := time.Duration(float64(took) * (float64(at.Total)/float64(at.Bytes) - 1))
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}
