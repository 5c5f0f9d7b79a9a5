//go:build unix

package accesslog

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakelog"
)

// cpu returns the time of a core that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perCore reports lines per second of a core, which other programs on the machine hardly change.
func perCore(b *testing.B, lines int, began time.Duration) {
	b.ReportMetric(float64(lines)*float64(b.N)/(cpu()-began).Seconds(), "lines/core-s")
}

// BenchmarkParse parses chunks in one goroutine.
func BenchmarkParse(b *testing.B) {
	for name, combined := range map[string]bool{"caddy": false, "combined": true} {
		b.Run(name, func(b *testing.B) {
			lines := 300
			if combined {
				lines = 1200
			}
			var log bytes.Buffer
			if err := fakelog.Write(&log, fakelog.Options{Lines: lines, Keys: 1000, Combined: combined}); err != nil {
				b.Fatal(err)
			}
			text := log.String()
			b.SetBytes(int64(len(text)))
			var p parser
			began := cpu()
			for b.Loop() {
				c := chunk{text: text, unit: 1}
				c.parse(&p, nil)
				if len(c.lines) != lines {
					b.Fatal(c.first)
				}
				c.recycle()
			}
			perCore(b, lines, began)
		})
	}
}

// BenchmarkRead reads a log from standard input on all cores.
func BenchmarkRead(b *testing.B) {
	const lines = 200_000
	var log bytes.Buffer
	if err := fakelog.Write(&log, fakelog.Options{Lines: lines, Keys: 1000}); err != nil {
		b.Fatal(err)
	}
	text := log.String()
	b.SetBytes(int64(len(text)))
	began := cpu()
	for b.Loop() {
		r, err := Open([]string{"-"}, Options{Stdin: strings.NewReader(text)})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for range r.All() {
			n++
		}
		if r.Err() != nil || n != lines {
			b.Fatal(n, r.Err())
		}
	}
	perCore(b, lines, began)
}
