package accesslog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// chunk is a part of a file that ends at the end of a line.
type chunk struct {
	text      string
	unit      time.Duration
	name      string
	err       error // in place of text
	unended   bool  // the file ends here, perhaps within a line
	cut       bool  // the file's compressed data end early
	parsed    chan struct{}
	lines     []Line
	all       int64 // lines of the file, empty ones as well
	filled    int64 // lines that are not empty
	other     int64
	broken    int64
	first     []Broken
	truncated bool
}

// keptBroken is how many broken lines are kept.
const keptBroken = 3

// slabs has the memory of chunks' lines.
var slabs sync.Pool

// parse reads the lines of c.
func (c *chunk) parse(p *parser, prepare func(*Line)) {
	p.unit = c.unit
	c.first = make([]Broken, 0, keptBroken)
	n := strings.Count(c.text, "\n") + 1
	if slab, ok := slabs.Get().(*[]Line); ok && cap(*slab) >= n {
		c.lines = (*slab)[:0]
	} else {
		c.lines = make([]Line, 0, n)
	}
	for text := c.text; text != ""; {
		line, rest, ended := strings.Cut(text, "\n")
		text = rest
		c.all++
		if line = trim(line); line == "" {
			continue
		}
		c.filled++
		at := len(c.lines)
		c.lines = c.lines[:at+1]
		l := &c.lines[at]
		*l = Line{Source: c.name, Number: c.all}
		res, why := p.parse(l, line)
		switch {
		case res == request:
			if prepare != nil {
				prepare(l)
			}
			continue
		case res == other:
			c.other++
		case c.unended && !ended:
			c.truncated = true
		default:
			c.broken++
			if len(c.first) < keptBroken {
				c.first = append(c.first, Broken{Number: c.all, Why: why, Text: strings.Clone(line[:min(len(line), 200)])})
			}
		}
		c.lines = c.lines[:at]
	}
	c.truncated = c.truncated || c.cut
}

// at returns the error in place of a chunk, with the line at which it occurred.
func (c *chunk) at(line int64) error {
	if errors.Is(c.err, errLong) {
		return fmt.Errorf("%s:%d: %w", c.name, line, c.err)
	}
	return c.err
}

// recycle gives back the memory of c's lines. It keeps the text of few chunks from being freed until it is used again.
func (c *chunk) recycle() {
	slab := c.lines
	c.lines = nil
	slabs.Put(&slab)
}
