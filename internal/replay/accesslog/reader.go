package accesslog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"sync/atomic"
)

// Options of a Reader.
type Options struct {
	// Stdin is read in place of a file named "-".
	Stdin io.Reader
	// Workers parse lines at the same time. Default: GOMAXPROCS.
	Workers int
	// Prepare is called with each request by the worker that parsed it, several at once. What it leaves in Line.Value
	// is there when Reader.All comes to the line. It must not keep the line.
	Prepare func(*Line)
}

// Reader reads the requests of access logs in the order in which they were logged.
type Reader struct {
	options Options
	sources []*source
	total   int64
	read    atomic.Int64
	lines   atomic.Int64
	report  Report
	err     error
}

// Report is what a Reader has read.
type Report struct {
	Bytes    int64 // of files, as they are on disk
	Lines    int64 // without empty ones
	Requests int64
	Other    int64 // lines of other loggers of Caddy
	Broken   int64
	First    []Broken // the first of those that are broken, at most three
	// Truncated names files that end within a line or within their compressed data: they are being written.
	Truncated []string
	// Whole counts requests whose time has no fraction.
	Whole int64
	// ByFormat counts requests.
	ByFormat map[Format]int64
}

// Broken is a line that could not be read.
type Broken struct {
	Source string
	Number int64 // of the line, from 1
	Why    string
	Text   string // its beginning
}

// String returns where a broken line is, and why it is broken.
func (b Broken) String() string { return fmt.Sprintf("%s:%d: %s", b.Source, b.Number, b.Why) }

// Progress of a Reader. Total is 0 if it is not known.
type Progress struct{ Bytes, Total, Lines int64 }

// Open returns a Reader of files, which are plain or compressed by gzip or zstd; "-" is standard input. It reads the
// beginning of each, to learn in which order they are to be read.
func Open(names []string, o Options) (*Reader, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	r := &Reader{options: o, report: Report{ByFormat: map[Format]int64{}}}
	for _, name := range names {
		s := &source{name: name, reader: r}
		if err := s.peek(); err != nil {
			return nil, err
		}
		r.sources = append(r.sources, s)
	}
	return r, nil
}

// Progress may be called while another goroutine reads.
func (r *Reader) Progress() Progress {
	return Progress{Bytes: r.read.Load(), Total: r.total, Lines: r.lines.Load()}
}

// Report returns what has been read. It may be called when All has ended.
func (r *Reader) Report() Report {
	r.report.Bytes = r.read.Load()
	return r.report
}

// Err returns why All has ended early, or why what it read cannot be trusted.
func (r *Reader) Err() error { return r.err }

// All returns the requests of all files in the order of their end. It can be used once. A Line is valid until the next
// one is asked for.
func (r *Reader) All() iter.Seq[*Line] {
	return func(yield func(*Line) bool) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		work := make(chan *chunk, r.options.Workers)
		for range r.options.Workers {
			go r.parse(ctx, work)
		}
		m := newMerge(ctx, work, r.sources)
		for {
			l, err := m.next()
			if err != nil {
				r.err = err
				return
			}
			if l == nil {
				r.err = r.judge()
				return
			}
			if !yield(l) {
				return
			}
		}
	}
}

// parse parses chunks until ctx is cancelled.
func (r *Reader) parse(ctx context.Context, work <-chan *chunk) {
	var p parser
	for {
		select {
		case c := <-work:
			c.parse(&p, r.options.Prepare)
			close(c.parsed)
		case <-ctx.Done():
			return
		}
	}
}

// count takes a parsed chunk of s into the report. It fails as soon as a log is not what it seems to be.
func (r *Reader) count(s *source, c *chunk) error {
	p := &r.report
	p.Lines += c.filled
	p.Requests += int64(len(c.lines))
	p.Other += c.other
	p.Broken += c.broken
	r.lines.Store(p.Lines)
	for _, b := range c.first {
		if len(p.First) < keptBroken {
			b.Source = s.name
			b.Number += s.before
			p.First = append(p.First, b)
		}
	}
	if c.truncated {
		p.Truncated = append(p.Truncated, s.name)
	}
	for i := range c.lines {
		l := &c.lines[i]
		p.ByFormat[l.Format]++
		if l.WholeSeconds() {
			p.Whole++
		}
	}
	if p.Broken > 1000 && p.Broken > p.Lines/2 {
		return r.tooMany()
	}
	return nil
}

// judge returns an error if too much of the files was broken, or if there was nothing to read.
func (r *Reader) judge() error {
	p := &r.report
	switch {
	case p.Broken*100 > p.Lines:
		return r.tooMany()
	case p.Requests == 0 && p.Other > 0:
		return fmt.Errorf("no requests in %d lines: they are of other loggers than http.log.access; give the access log, which the directive log writes", p.Lines)
	case p.Requests == 0:
		return errors.New("no requests: the logs are empty")
	}
	return nil
}

// tooMany returns an error that shows the first broken line and what the log may be.
func (r *Reader) tooMany() error {
	p := &r.report
	b := p.First[0]
	return fmt.Errorf("%d of %d lines cannot be read; %s; %s", p.Broken, p.Lines, b, probable(b.Text))
}
