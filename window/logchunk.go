package window

import (
	"encoding/binary"
	"math"
)

// logChunk holds records, oldest first, in the layout of logchunk.lua but for the expiry: the
// header, and an entry per record but the newest, with the time to the next one.
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

// newestAt returns the time of the newest record.
func (ch logChunk) newestAt() int64 { return int64(binary.BigEndian.Uint64(ch) >> 16) }

// upTo returns the running total.
func (ch logChunk) upTo() int64 { return int64(binary.BigEndian.Uint64(ch[6:]) >> 8) }

// setUpTo writes another running total.
func (ch logChunk) setUpTo(units int64) {
	binary.BigEndian.PutUint64(ch[6:], uint64(units)<<8|uint64(ch[13]))
}

// read makes p all of a chunk.
func (p *logPart) read(ch logChunk) {
	p.newest.at, p.newest.units, p.upTo = ch.newestAt(), int64(ch[13]), ch.upTo()
	if len(ch) > logLongLone {
		both := binary.BigEndian.Uint64(ch[logLoneHeader:])
		p.span, p.inside, p.entries = int64(both>>32), int64(uint32(both)), ch[logHeader:]
	} else {
		p.span, p.inside, p.entries = 0, 0, ch[logLoneHeader:]
	}
	if p.newest.units == 0 {
		units, size := binary.Uvarint(p.entries)
		p.newest.units, p.entries = int64(units), p.entries[size:]
	}
}

// appendTo appends a chunk of the part, and of an entry behind its own.
func (p *logPart) appendTo(b []byte, entry ...byte) []byte {
	var header [logHeader]byte
	p.putHeader(header[:])
	if len(p.entries)+len(entry) > 0 {
		b = append(b, header[:]...)
	} else {
		b = append(b, header[:logLoneHeader]...)
	}
	if !p.plain() {
		b = binary.AppendUvarint(b, uint64(p.newest.units))
	}
	return append(append(b, p.entries...), entry...)
}

// plain reports whether the header has room for the units of the newest record.
func (p *logPart) plain() bool { return p.newest.units < 256 }

// putHeader writes the header of several records.
func (p *logPart) putHeader(b []byte) {
	binary.BigEndian.PutUint64(b, uint64(p.newest.at)<<16|uint64(p.upTo)>>40)
	binary.BigEndian.PutUint64(b[6:], uint64(p.upTo)<<8)
	binary.BigEndian.PutUint32(b[logLoneHeader:], uint32(p.span))
	binary.BigEndian.PutUint32(b[logLoneHeader+4:], uint32(p.inside))
	if p.plain() {
		b[13] = byte(p.newest.units)
	}
}

// oldest returns the time of the oldest record.
func (p *logPart) oldest() int64 { return p.newest.at - p.span }

// before returns the running total before the oldest record.
func (p *logPart) before() int64 { return p.upTo - p.newest.units - p.inside }

// skip drops what is before the oldest record that is at t or later, and up to and with
// which there are more than k units. There is one: the newest.
func (p *logPart) skip(t, k int64) {
	at, before, rest := p.oldest(), p.before(), p.entries
	for len(rest) > 0 && (at < t || before <= k) {
		gap, units, size := int64(rest[0]/2), int64(1), 1
		if !isShort(rest) { // else it is read without a call
			gap, units, size = readEntry(rest)
		}
		if at >= t && before+units > k {
			break
		}
		at += gap
		before += units
		rest = rest[size:]
	}
	p.span, p.inside, p.entries = p.newest.at-at, p.upTo-p.newest.units-before, rest
}

// add adds n units at now, which must not be before the newest record. It returns the encoded
// entry to append to p.entries, nil if now is the time of the newest record. It reports
// whether the chunk still has room: at most `full` entries of this one's length.
func (p *logPart) add(now, n int64, full int, entry []byte) ([]byte, bool) {
	p.upTo += n
	if now == p.newest.at {
		p.newest.units += n
		return nil, true
	}
	gap := now - p.newest.at
	entry = appendEntry(entry, gap, p.newest.units)
	p.span, p.inside = p.span+gap, p.inside+p.newest.units
	p.newest = logRecord{now, n}
	return entry, len(p.entries) < full*len(entry) && p.span <= math.MaxUint32 && p.inside <= math.MaxUint32
}

// appendEntry appends ms × 2, + 1 if units other than 1 follow.
func appendEntry(b []byte, gap, units int64) []byte {
	if units == 1 {
		return binary.AppendUvarint(b, uint64(gap)*2)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(gap)*2+1), uint64(units))
}

// isShort reports whether the first of the entries is one byte, of twice its ms.
func isShort(b []byte) bool { return b[0]&0x81 == 0 }

// readEntry reads the first of the entries, and returns its length, too.
func readEntry(b []byte) (gap, units int64, size int) {
	if isShort(b) {
		return int64(b[0] / 2), 1, 1
	}
	twice, size := binary.Uvarint(b)
	if twice%2 == 0 {
		return int64(twice / 2), 1, size
	}
	many, more := binary.Uvarint(b[size:])
	return int64(twice / 2), int64(many), size + more
}

// records returns the records, oldest first.
func (p *logPart) records() []logRecord {
	var all []logRecord
	at := p.oldest()
	for rest := p.entries; len(rest) > 0; {
		gap, units, size := readEntry(rest)
		all = append(all, logRecord{at, units})
		at += gap
		rest = rest[size:]
	}
	return append(all, p.newest)
}

// partOf returns records, oldest first, as a part. They go into one chunk.
func partOf(all []logRecord, upTo int64) logPart {
	last := len(all) - 1
	p := logPart{newest: all[last], upTo: upTo, span: all[last].at - all[0].at}
	for i, r := range all[:last] {
		p.entries = appendEntry(p.entries, all[i+1].at-r.at, r.units)
		p.inside += r.units
	}
	return p
}
