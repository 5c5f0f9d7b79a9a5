package window

import (
	"encoding/binary"
	"sort"
)

// layer holds slices of one length, in order of time. The newest is open.
type layer struct {
	length int64 // ms
	closed tallies
	open   tally // count 0: the layer is empty
}

// tally is a slice: its latest unit, and how many there are.
type tally struct {
	at    int64 // ms
	count int64
}

// tallies are slices, one behind the other.
type tallies []byte

const tallySize = 2 * 8 // bytes

func (s tallies) len() int { return len(s) / tallySize }

func (s tallies) at(i int) tally {
	b := s[i*tallySize:][:tallySize]
	return tally{at: int64(binary.LittleEndian.Uint64(b)), count: int64(binary.LittleEndian.Uint64(b[8:]))}
}

// read takes the slices from where they are kept. Added slices are kept elsewhere.
func (l *layer) read(all tallies) {
	if n := all.len(); n > 0 {
		end := (n - 1) * tallySize
		l.closed, l.open = all[:end:end], all.at(n-1)
	}
}

func (l *layer) appendTo(h History) History {
	if l.open.count == 0 {
		return h
	}
	return append(h, l.closed...).appendNumbers(l.open.at, l.open.count)
}

// len returns how many slices there are.
func (l *layer) len() int {
	if l.open.count == 0 {
		return 0
	}
	return l.closed.len() + 1
}

// number returns the absolute number of the slice that t lies in.
func (l *layer) number(t int64) int64 { return floorDiv(t, l.length) }

// from returns the index of the first closed slice of that number or a later one.
func (l *layer) from(number int64) int {
	return sort.Search(l.closed.len(), func(i int) bool { return l.number(l.closed.at(i).at) >= number })
}

// add books n units at a time no earlier than any other. It reports whether
// they belong to the open slice; else that one is closed.
func (l *layer) add(at, n int64) bool {
	switch {
	case l.open.count == 0:
	case l.number(l.open.at) == l.number(at):
		l.open.count += n
		return true
	default:
		l.closed = tallies(History(l.closed).appendNumbers(l.open.at, l.open.count))
	}
	l.open = tally{at, n}
	return false
}

// drop forgets the closed slices that end before since.
func (l *layer) drop(since int64) {
	l.closed = l.closed[l.from(l.number(since))*tallySize:]
}

// each visits the slices with numbers first to last, oldest first. It reports
// whether none of the visits was the last wanted.
func (l *layer) each(first, last int64, visit func(tally) bool) bool {
	if l.open.count == 0 {
		return true
	}
	for i := l.from(first); i < l.closed.len(); i++ {
		t := l.closed.at(i)
		if l.number(t.at) > last {
			break
		}
		if !visit(t) {
			return false
		}
	}
	newest := l.number(l.open.at)
	return newest < first || newest > last || visit(l.open)
}
