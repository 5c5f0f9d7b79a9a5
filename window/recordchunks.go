package window

import (
	"encoding/binary"
	"slices"
	"sort"
)

// records is the History of Zset, Log and Stream: chunks of records, oldest first. Most
// keys have one chunk, behind a byte that is 0. With more,
//
//	1 byte   is 1
//	8 bytes  say where the oldest chunk begins: what is before it is gone
//	8 bytes  say where the newest one begins
//	pages    hold chunks, and zeros when there is no room for the next one
//
// with the least significant byte first. A chunk begins with 2 bytes that say how many
// follow. Each page after that of the oldest chunk begins with a chunk, so that any can
// be found in few steps.
type records History

const (
	beforeOne  = 1 // bytes before the only chunk
	saysOldest = 1 // where it is written, if there are more
	saysNewest = saysOldest + 8
	beforeMany = saysNewest + 8
	lengthSize = 2
	pageSize   = 2048 // bytes: no chunk takes more than 1400
)

// place is where a chunk lies, without its length. The zero place is nowhere.
type place struct{ from, to int }

func (p place) nowhere() bool { return p.from == p.to }

func (p place) begin() int { return p.from - lengthSize }

// page returns the number of the page that a byte lies in.
func page(at int) int { return (at - beforeMany) / pageSize }

// pageAt returns where a page begins.
func pageAt(page int) int { return beforeMany + page*pageSize }

func (h records) at(begin int) place {
	from := begin + lengthSize
	return place{from, from + int(binary.LittleEndian.Uint16(h[begin:]))}
}

func (h records) oldest() place { return h.said(saysOldest) }
func (h records) newest() place { return h.said(saysNewest) }

// said returns the chunk that begins where those bytes say; or the only one.
func (h records) said(says int) place {
	switch {
	case len(h) == 0:
		return place{}
	case h[0] == 0:
		return place{beforeOne, len(h)}
	}
	return h.at(int(binary.LittleEndian.Uint64(h[says:])))
}

// next returns the chunk that follows.
func (h records) next(p place) place {
	if p.to == len(h) {
		return place{}
	}
	left := pageAt(page(p.to-1)+1) - p.to
	if left < lengthSize || h[p.to] == 0 && h[p.to+1] == 0 {
		return h.at(p.to + left)
	}
	return h.at(p.to)
}

func (h records) setOldest(p place) { binary.LittleEndian.PutUint64(h[saysOldest:], uint64(p.begin())) }

func (h records) setNewest(p place) { binary.LittleEndian.PutUint64(h[saysNewest:], uint64(p.begin())) }

func (h records) setLength(p place) {
	binary.LittleEndian.PutUint16(h[p.begin():], uint16(p.to-p.from))
}

// part returns what the chunk at p holds.
func (h records) part(p place) (part logPart) {
	part.read(logChunk(h[p.from:p.to]))
	return part
}

// has reports whether the chunk at p has a unit at t or later behind the k first ones;
// then all later chunks have.
func (h records) has(p place, t, k int64) bool {
	ch := logChunk(h[p.from:p.to])
	return ch.newestAt() >= t && ch.upTo() > k
}

// first returns the first chunk that has such a unit.
func (h records) first(t, k int64) place {
	p := h.oldest()
	if p.nowhere() || h.has(p, t, k) {
		return p
	}
	if h[0] == 0 {
		return place{}
	}
	old := page(p.begin())
	later := sort.Search(page(h.newest().begin())-old, func(i int) bool { return h.has(h.at(pageAt(old+1+i)), t, k) })
	if later > 0 {
		p = h.at(pageAt(old + later))
	}
	for !p.nowhere() && !h.has(p, t, k) {
		p = h.next(p)
	}
	return p
}

// only returns records of a part, and of an entry behind its own. The part may be one of h.
func (h records) only(p *logPart, entry ...byte) records {
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

// putNewest writes a chunk, which is not one of h, to where it begins or to the next
// page. What was behind that is gone.
func (h records) putNewest(begin int, ch logChunk) records {
	h = h[:begin]
	if end := begin + lengthSize + len(ch); page(end-1) > page(begin) {
		h = append(h, make([]byte, pageAt(page(begin)+1)-begin)...)
	}
	p := place{from: len(h) + lengthSize}
	h = append(append(h, 0, 0), ch...)
	p.to = len(h)
	h.setNewest(p)
	h.setLength(p)
	return h
}

// replaceNewest replaces chunk p, which is not the only one, by a part and one more entry. Chunks behind p are dropped.
func (h records) replaceNewest(p place, part *logPart, entry ...byte) records {
	if !part.plain() || len(part.entries) == 0 || &part.entries[0] != &h[p.from+logHeader] {
		var room [256]byte
		return h.putNewest(p.begin(), part.appendTo(room[:0], entry...))
	}
	h = append(h[:p.to], entry...) // the others stay there
	part.putHeader(h[p.from:])
	p.to = len(h)
	if page(p.to-1) > page(p.begin()) {
		return h.putNewest(p.begin(), slices.Clone(logChunk(h[p.from:])))
	}
	h.setNewest(p)
	h.setLength(p)
	return h
}

// push adds a chunk, which is not one of h, to those that there are.
func (h records) push(ch logChunk) records {
	if h[0] == 0 {
		only := slices.Clone(logChunk(h[beforeOne:]))
		h = append(h[:0], make([]byte, beforeMany)...)
		h[0] = 1
		h = h.putNewest(beforeMany, only)
		h.setOldest(h.newest())
	}
	return h.putNewest(len(h), ch)
}

// shorten writes what is left of a chunk to where it ends, and returns its new place. It
// is not the only one, and those before it are gone.
func (h records) shorten(p place, part *logPart) place {
	if part.plain() && len(part.entries) > 0 { // they stay there
		p.from = p.to - len(part.entries) - logHeader
		part.putHeader(h[p.from:])
	} else {
		ch := part.appendTo(nil)
		p.from = p.to - len(ch)
		copy(h[p.from:], ch)
	}
	h.setLength(p)
	return p
}

// forget drops the chunks before p, of two or more that stay. Pages move once more are
// gone than stay, so that the cost is constant over many calls.
func (h records) forget(p place) records {
	h.setOldest(p)
	gone := pageAt(page(p.begin())) - beforeMany
	if gone <= len(h)-beforeMany-gone {
		return h
	}
	newest := h.newest()
	h = h[:beforeMany+copy(h[beforeMany:], h[beforeMany+gone:])]
	h.setOldest(place{from: p.from - gone})
	h.setNewest(place{from: newest.from - gone})
	return h
}

// replace returns records with another chunk in place of p, or without it if that is
// empty.
func (h records) replace(p place, ch logChunk) records {
	var all records
	for q := h.oldest(); !q.nowhere(); q = h.next(q) {
		is := logChunk(h[q.from:q.to])
		if q == p {
			is = ch
		}
		switch {
		case len(is) == 0:
		case all == nil:
			all = append(records{0}, is...)
		default:
			all = all.push(is)
		}
	}
	return all
}
