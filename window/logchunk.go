package window

import (
	"encoding/binary"
	"math"
	"slices"
)

// logChunk holds records, oldest first, in the layout of log.lua: the header, and an
// entry per record but the newest, with the time to the next one.
type logChunk []byte

// A header has 6 bytes of time, 7 of the running total, and 1 of the units of the newest
// record, or 0 and a varint of them behind the header. Of several records, it has 4 bytes
// of the time from the oldest to the newest, and 4 of the units of all but the newest.
const (
	logLoneHeader = 14
	logHeader     = logLoneHeader + 8
	logLongLone   = logLoneHeader + 8 // with the longest varint
)

// logRecord is all units of one millisecond.
type logRecord struct{ at, units int64 }

// logPart is a chunk, or what is left of it without its oldest records.
type logPart struct {
	newest  logRecord
	upTo    int64  // units up to and with the newest record, since the key was new
	span    int64  // ms from the oldest record to the newest
	inside  int64  // units of all records but the newest
	entries []byte // of these
}

// part returns all of a chunk.
func (ch logChunk) part() logPart {
	p := logPart{
		newest:  logRecord{at: int64(binary.BigEndian.Uint64(ch) >> 16), units: int64(ch[13])},
		upTo:    int64(binary.BigEndian.Uint64(ch[6:]) >> 8),
		entries: ch[logLoneHeader:],
	}
	if len(ch) > logLongLone {
		p.span = int64(binary.BigEndian.Uint32(ch[logLoneHeader:]))
		p.inside = int64(binary.BigEndian.Uint32(ch[logLoneHeader+4:]))
		p.entries = ch[logHeader:]
	}
	if p.newest.units == 0 {
		units, size := binary.Uvarint(p.entries)
		p.newest.units, p.entries = int64(units), p.entries[size:]
	}
	return p
}

// chunk returns a chunk of the part, and of an entry behind its own.
func (p logPart) chunk(entry ...byte) logChunk {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(p.newest.at)<<16|uint64(p.upTo)>>40)
	b = binary.BigEndian.AppendUint64(b[:6], uint64(p.upTo)<<8)
	if len(p.entries)+len(entry) > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(p.span))
		b = binary.BigEndian.AppendUint32(b, uint32(p.inside))
	}
	if p.newest.units < 256 {
		b[13] = byte(p.newest.units)
	} else {
		b = binary.AppendUvarint(b, uint64(p.newest.units))
	}
	return slices.Clone(append(append(b, p.entries...), entry...))
}

// oldest returns the time of the oldest record.
func (p logPart) oldest() int64 { return p.newest.at - p.span }

// before returns the running total before the oldest record.
func (p logPart) before() int64 { return p.upTo - p.newest.units - p.inside }

// next returns the part without its oldest record; there are two or more.
func (p logPart) next() logPart {
	gap, size := binary.Uvarint(p.entries)
	p.entries = p.entries[size:]
	units := uint64(1)
	if gap%2 == 1 {
		units, size = binary.Uvarint(p.entries)
		p.entries = p.entries[size:]
	}
	p.span -= int64(gap / 2)
	p.inside -= int64(units)
	return p
}

// from returns the part from the oldest record on that is at t or later and up to and
// with which there are more than k units. There is one: the newest.
func (p logPart) from(t, k int64) logPart {
	for len(p.entries) > 0 {
		next := p.next()
		if p.oldest() >= t && next.before() > k {
			break
		}
		p = next
	}
	return p
}

// add returns the chunk of the part and of n units at now, which is not before its
// newest record. It returns nil if they have to begin a chunk of their own.
func (p logPart) add(now, n int64) logChunk {
	p.upTo += n
	if now == p.newest.at {
		p.newest.units += n
		return p.chunk()
	}
	gap := now - p.newest.at
	var room [2 * binary.MaxVarintLen64]byte
	entry := appendEntry(room[:0], gap, p.newest.units)
	p.span, p.inside = p.span+gap, p.inside+p.newest.units
	if len(p.entries) >= logFull*len(entry) || p.span > math.MaxUint32 || p.inside > math.MaxUint32 {
		return nil
	}
	p.newest = logRecord{now, n}
	return p.chunk(entry...)
}

// appendEntry appends ms × 2, + 1 if units other than 1 follow.
func appendEntry(b []byte, gap, units int64) []byte {
	if units == 1 {
		return binary.AppendUvarint(b, uint64(gap)*2)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(gap)*2+1), uint64(units))
}

// records returns the records, oldest first.
func (p logPart) records() []logRecord {
	var all []logRecord
	for len(p.entries) > 0 {
		next := p.next()
		all = append(all, logRecord{p.oldest(), next.before() - p.before()})
		p = next
	}
	return append(all, p.newest)
}

// packRecords returns a chunk of records of one chunk, oldest first.
func packRecords(all []logRecord, upTo int64) logChunk {
	last := len(all) - 1
	p := logPart{newest: all[last], upTo: upTo, span: all[last].at - all[0].at}
	for i, r := range all[:last] {
		p.entries = appendEntry(p.entries, all[i+1].at-r.at, r.units)
		p.inside += r.units
	}
	return p.chunk()
}
