package accesslog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// merge takes lines from several sources, always the one that ended first. A source is opened when its first request
// is due: rotated files are read one after the other.
type merge struct {
	ctx     context.Context
	work    chan<- *chunk
	waiting []*source // in the order of their start
	open    []*source // each has a line, and they are in the order of its end
	out     bool      // the line of open[0] was handed out
}

// newMerge returns a merge of sources.
func newMerge(ctx context.Context, work chan<- *chunk, sources []*source) *merge {
	waiting := slices.Clone(sources)
	slices.SortStableFunc(waiting, func(a, b *source) int { return cmp.Compare(a.start, b.start) })
	return &merge{ctx: ctx, work: work, waiting: waiting}
}

// next returns the next line, nil at the end.
func (m *merge) next() (*Line, error) {
	if m.out {
		m.out = false
		if err := m.advance(0); err != nil {
			return nil, err
		}
	}
	for len(m.waiting) > 0 && (len(m.open) == 0 || m.waiting[0].start <= m.open[0].line().End) {
		s := m.waiting[0]
		m.waiting = m.waiting[1:]
		s.chunks = make(chan *chunk, queue)
		go s.read(m.ctx, m.work)
		m.open = slices.Insert(m.open, 0, s)
		if err := m.advance(0); err != nil {
			return nil, err
		}
	}
	if len(m.open) == 0 {
		return nil, nil
	}
	m.out = true
	return m.open[0].line(), nil
}

// advance moves open[i] to its next line, and to its place in the order. A source that has ended leaves.
func (m *merge) advance(i int) error {
	s := m.open[i]
	more, err := s.advance()
	if err != nil {
		return err
	}
	if !more {
		m.open = slices.Delete(m.open, i, i+1)
		return nil
	}
	for end := s.line().End; i+1 < len(m.open) && m.open[i+1].line().End < end; i++ {
		m.open[i], m.open[i+1] = m.open[i+1], s
	}
	return nil
}

// line returns the line at which s is.
func (s *source) line() *Line { return &s.now.lines[s.at] }

// advance moves s to its next line. It reports whether there is one.
func (s *source) advance() (bool, error) {
	s.at++
	for s.now == nil || s.at >= len(s.now.lines) {
		if s.now != nil {
			s.before += s.now.all
			s.now.recycle()
		}
		var more bool
		if s.now, more = <-s.chunks; !more {
			return false, nil
		}
		if s.now.err != nil {
			return false, s.now.at(s.before + 1)
		}
		<-s.now.parsed
		if err := s.reader.count(s, s.now); err != nil {
			return false, err
		}
		s.at = 0
	}
	l := s.line()
	l.Number += s.before
	if back := s.last - l.End; l.local && back > int64(50*time.Minute) && back < int64(70*time.Minute) {
		return false, fmt.Errorf("%s:%d: the time steps back by an hour, as local times do when summer ends, and has no zone; log with time_format rfc3339_nano, or replay the parts before and after this line apart", s.name, l.Number)
	}
	s.last = l.End
	return true, nil
}
