package accesslog

import (
	"math"
	"strings"
	"time"
)

// parser reads lines, one after the other. Each goroutine has its own.
type parser struct {
	unit time.Duration // of durations that are whole numbers; 0: sample collects them

	sampled struct {
		fractional bool
		least      int64 // the least whole number above 0
	}

	day, zone string // of the common time that was read last
	midnight  int64
}

// parse reads a line into l, which is empty. It returns why a line is broken.
func (p *parser) parse(l *Line, s string) (result, string) {
	if s[0] == '{' {
		l.Format = JSON
		return p.parseJSON(l, s)
	}
	if isConsole(s) {
		l.Format = Console
		return p.parseConsole(l, s)
	}
	l.Format = Combined
	res, why := p.parseCombined(l, s)
	if res == broken && isMessage(s) {
		return other, ""
	}
	return res, why
}

// sampleLines are looked at to learn the unit of a file's durations.
const sampleLines = 1000

// unitOf returns the unit of durations that are whole numbers, given the beginning of a file. Caddy writes seconds with
// a fraction; duration_format writes milliseconds or nanoseconds without. No request takes less than a microsecond, so
// that a log in which no duration is below 1000 is in nanoseconds.
func unitOf(text string) time.Duration {
	var p parser
	p.sampled.least = math.MaxInt64
	for range sampleLines {
		line, rest, more := strings.Cut(text, "\n")
		if line = trim(line); line != "" {
			p.parse(new(Line), line)
		}
		if text = rest; !more {
			break
		}
	}
	switch {
	case p.sampled.fractional || p.sampled.least == math.MaxInt64:
		return time.Second
	case p.sampled.least >= 1000:
		return time.Nanosecond
	}
	return time.Millisecond
}

// sample learns from a duration.
func (p *parser) sample(whole int64, fractional bool) {
	p.sampled.fractional = p.sampled.fractional || fractional
	if !fractional && whole > 0 {
		p.sampled.least = min(p.sampled.least, whole)
	}
}

// trim returns a line without the end that Windows gives lines, and without white space before it.
func trim(line string) string {
	if line == "" || (line[0] > ' ' && line[len(line)-1] > ' ') {
		return line
	}
	return strings.Trim(line, " \r\n")
}
