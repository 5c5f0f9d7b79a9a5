package window

import (
	"encoding/binary"
	"slices"
)

// records is the History of Zset, Log and Stream: chunks of records, oldest first. Most
// keys have one chunk, behind a byte that is 0. With more,
//
//	1 byte   is 1
//	8 bytes  say where the oldest chunk begins: what is before it is gone
//	8 bytes  say where the newest one begins
//	chunks   have 2 bytes before and behind them that say how long they are
//
// with the least significant byte first. Chunks that are read or written again and again
// are the newest, of which the end changes, and the oldest, of which the beginning does.
type records History

const (
	beforeOne  = 1 // bytes before the only chunk
	beforeMany = 1 + 8 + 8
	lengthSize = 2
)

// place is where a chunk lies, without its lengths; from is to if there is none.
type place struct{ from, to int }

func (h records) at(begin int) place {
	from := begin + lengthSize
	return place{from, from + int(binary.LittleEndian.Uint16(h[begin:]))}
}

// end returns where chunk p ends, with its length.
func (h records) end(p place) int {
	if h[0] == 0 {
		return p.to
	}
	return p.to + lengthSize
}

func (h records) oldest() place {
	switch {
	case len(h) == 0:
		return place{}
	case h[0] == 0:
		return place{beforeOne, len(h)}
	}
	return h.at(int(binary.LittleEndian.Uint64(h[1:])))
}

func (h records) newest() place {
	switch {
	case len(h) == 0:
		return place{}
	case h[0] == 0:
		return place{beforeOne, len(h)}
	}
	return h.at(int(binary.LittleEndian.Uint64(h[9:])))
}

// next returns the chunk that follows.
func (h records) next(p place) place {
	end := h.end(p)
	if end == len(h) {
		return place{}
	}
	return h.at(end)
}

// before returns the chunk before p, which is not the oldest.
func (h records) before(p place) place {
	to := p.from - 2*lengthSize
	return place{to - int(binary.LittleEndian.Uint16(h[to:])), to}
}

func (h records) setOldest(p place) {
	binary.LittleEndian.PutUint64(h[1:], uint64(p.from-lengthSize))
}

func (h records) setNewest(p place) {
	binary.LittleEndian.PutUint64(h[9:], uint64(p.from-lengthSize))
}

// setLengths writes how long the chunk at p is.
func (h records) setLengths(p place) {
	length := uint16(p.to - p.from)
	binary.LittleEndian.PutUint16(h[p.from-lengthSize:], length)
	binary.LittleEndian.PutUint16(h[p.to:], length)
}

func (p place) nowhere() bool { return p.from == p.to }

// part returns what the chunk at p holds.
func (h records) part(p place) logPart { return logChunk(h[p.from:p.to]).part() }

// only returns records of a part, and of an entry behind its own. The part may be one of h.
func (h records) only(p logPart, entry ...byte) records {
	const before = beforeOne + logHeader
	if p.plain() && len(p.entries) > 0 && cap(h) >= before { // which are there, or further behind
		h = append(append(h[:before], p.entries...), entry...)
		h[0] = 0
		p.putHeader(h[beforeOne:])
		return h
	}
	var room [256]byte
	ch := p.appendTo(room[:0], entry...)
	return append(append(h[:0], 0), ch...)
}

// replaceNewest writes a part, and an entry behind its own, from where chunk p begins;
// it is not the only one, and those behind it are gone.
func (h records) replaceNewest(p place, part logPart, entry ...byte) records {
	if part.plain() && len(part.entries) > 0 && &part.entries[0] == &h[p.from+logHeader] { // they stay there
		h = append(h[:p.to], entry...)
		part.putHeader(h[p.from:])
	} else {
		var room [256]byte
		h = append(h[:p.from], part.appendTo(room[:0], entry...)...)
	}
	p.to = len(h)
	h = append(h, 0, 0)
	h.setNewest(p)
	h.setLengths(p)
	return h
}

// push adds a chunk.
func (h records) push(part logPart) records {
	if h[0] == 0 {
		only := place{beforeMany + lengthSize, beforeMany + lengthSize + len(h) - beforeOne}
		h = append(h, make([]byte, beforeMany-beforeOne+2*lengthSize)...)
		copy(h[only.from:only.to], h[beforeOne:])
		h[0] = 1
		h.setOldest(only)
		h.setLengths(only)
	}
	p := place{from: len(h) + lengthSize}
	h = part.appendTo(append(h, 0, 0))
	p.to = len(h)
	h = append(h, 0, 0)
	h.setNewest(p)
	h.setLengths(p)
	return h
}

// shorten writes what is left of a chunk to where it ends, and returns its new place. It
// is not the only one, and those before it are gone.
func (h records) shorten(p place, part logPart) place {
	if part.plain() && len(part.entries) > 0 { // they stay there
		p.from = p.to - len(part.entries) - logHeader
		part.putHeader(h[p.from:])
	} else {
		var room [256]byte
		ch := part.appendTo(room[:0])
		p.from = p.to - len(ch)
		copy(h[p.from:], ch)
	}
	h.setLengths(p)
	return p
}

// forget drops the chunks before p, of two or more that stay. What stays moves once
// more than that is gone, so that the cost is constant over many calls.
func (h records) forget(p place) records {
	h.setOldest(p)
	begin := p.from - lengthSize
	gone := begin - beforeMany
	if gone <= len(h)-begin {
		return h
	}
	newest := h.newest()
	h = h[:beforeMany+copy(h[beforeMany:], h[begin:])]
	h.setOldest(place{from: p.from - gone})
	h.setNewest(place{from: newest.from - gone})
	return h
}

// replace puts a chunk, which is no longer, where another one of many is.
func (h records) replace(p place, ch logChunk) records {
	newest := h.newest()
	h = slices.Replace(h, p.from, p.to, ch...)
	h.setLengths(place{p.from, p.from + len(ch)})
	if p.from < newest.from {
		newest.from += len(ch) - (p.to - p.from)
		h.setNewest(newest)
	}
	return h
}

// remove takes out a chunk.
func (h records) remove(p place) records {
	oldest, newest := h.oldest(), h.newest()
	switch {
	case oldest == newest:
		return h[:0]
	case p == newest:
		newest = h.before(p)
	default:
		newest.from -= p.to - p.from + 2*lengthSize
	}
	h = slices.Delete(h, p.from-lengthSize, p.to+lengthSize)
	h.setNewest(newest)
	return h
}
