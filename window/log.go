package window

import (
	"encoding/binary"
	"slices"
	"sort"
	"time"
)

// Log is the exact sliding-window log like Zset, packed: two to four bytes per
// event, whatever its cost. In Redis it is a list of chunks of records; see
// log.lua for the layout, which is the same here.
//
// The promise is that of Zset. When the clock steps back, units that lie in the
// future are stored as spent just now by any charge that is taken.
type Log struct{}

// Name implements Algorithm.
func (Log) Name() string { return "log" }

// Options implements Algorithm.
func (Log) Options() []int64 { return nil }

// NewState implements Algorithm.
func (Log) NewState() State { return new(logState) }

// logFull is how many records a chunk gets, as if all were as long as the next.
const logFull = 16

// logState holds the chunks, oldest first.
type logState struct{ chunks []logChunk }

// logChunk holds records, newest first, in the layout of log.lua: 6 bytes of time,
// 7 of the running total and 1 of the units of the newest record, or 0 and a
// varint of them; then an entry per older record.
type logChunk []byte

// logRecord is all units of one millisecond.
type logRecord struct {
	at    int64 // ms
	upTo  int64 // units up to and with this record, since the key was new
	units int64
	older []byte // entries of the older records of the chunk
}

// appendEntry appends ms × 2, + 1 if units other than 1 follow.
func appendEntry(b []byte, gap, units int64) []byte {
	if units == 1 {
		return binary.AppendUvarint(b, uint64(gap)*2)
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(gap)*2+1), uint64(units))
}

// chunk returns a chunk of the record and the entries of older ones.
func (r logRecord) chunk(older ...[]byte) logChunk {
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(r.at)<<16|uint64(r.upTo)>>40)
	b = binary.BigEndian.AppendUint64(b[:6], uint64(r.upTo)<<8)
	if r.units < 256 {
		b[13] = byte(r.units)
	} else {
		b = binary.AppendUvarint(b, uint64(r.units))
	}
	for _, o := range older {
		b = append(b, o...)
	}
	return slices.Clone(b)
}

// newest returns the newest record.
func (ch logChunk) newest() logRecord {
	r := logRecord{
		at:    int64(binary.BigEndian.Uint64(ch) >> 16),
		upTo:  int64(binary.BigEndian.Uint64(ch[6:]) >> 8),
		units: int64(ch[13]),
		older: ch[14:],
	}
	if r.units == 0 {
		units, size := binary.Uvarint(r.older)
		r.units, r.older = int64(units), r.older[size:]
	}
	return r
}

// next returns the record before r in time, the first of r.older.
func (r logRecord) next() logRecord {
	gap, size := binary.Uvarint(r.older)
	o := logRecord{at: r.at - int64(gap/2), upTo: r.before(), units: 1, older: r.older[size:]}
	if gap%2 == 1 {
		units, size := binary.Uvarint(o.older)
		o.units, o.older = int64(units), o.older[size:]
	}
	return o
}

// before returns the running total before the record.
func (r logRecord) before() int64 { return r.upTo - r.units }

// tail returns the newest record of all, or an empty one.
func (s *logState) tail() logRecord {
	if len(s.chunks) == 0 {
		return logRecord{}
	}
	return s.chunks[len(s.chunks)-1].newest()
}

// locate finds the oldest record at t or later up to and with which there are
// more than k units. It returns the record and the index of its chunk, which is
// len(s.chunks) if there is none.
func (s *logState) locate(t, k int64) (r logRecord, i int) {
	i = sort.Search(len(s.chunks), func(i int) bool {
		newest := s.chunks[i].newest()
		return newest.at >= t && newest.upTo > k
	})
	if i == len(s.chunks) {
		return r, i
	}
	r = s.chunks[i].newest()
	for len(r.older) > 0 && r.before() > k {
		next := r.next()
		if next.at < t {
			break
		}
		r = next
	}
	return r, i
}

func (s *logState) count(now int64, p Policy) int64 {
	r, i := s.locate(now-p.Window.Milliseconds()+1, 0)
	if i == len(s.chunks) {
		return 0
	}
	return s.tail().upTo - r.before()
}

// leaves returns the time until more than the k oldest units of the policy's
// window have left it; the whole window if there are no more.
func (s *logState) leaves(now int64, p Policy, k int64) time.Duration {
	r, i := s.locate(now-p.Window.Milliseconds()+1, s.tail().upTo-s.count(now, p)+k)
	if i == len(s.chunks) {
		return p.Window
	}
	return p.Window - millis(now-min(r.at, now))
}

// records returns the records of a chunk, newest first.
func (ch logChunk) records() []logRecord {
	all := []logRecord{ch.newest()}
	for r := all[0]; len(r.older) > 0; {
		r = r.next()
		all = append(all, r)
	}
	return all
}

// packRecords returns a chunk of the records, newest first.
func packRecords(all []logRecord, total int64) logChunk {
	var older []byte
	for i, r := range all[1:] {
		older = appendEntry(older, all[i].at-r.at, r.units)
	}
	return logRecord{at: all[0].at, upTo: total, units: all[0].units}.chunk(older)
}

// pullBack moves everything that lies in the future to now.
func (s *logState) pullBack(now int64) {
	total := s.tail().upTo
	r, i := s.locate(now, 0)
	all := []logRecord{{at: now, units: total - r.before()}}
	for _, r := range s.chunks[i].records() {
		if r.at < now {
			all = append(all, r)
		}
	}
	s.chunks[i] = packRecords(all, total)
	s.chunks = slices.Delete(s.chunks, i+1, len(s.chunks))
}

// rebase makes room for running totals: it forgets all that was spent at or
// before edge, and counts from there.
func (s *logState) rebase(edge int64) {
	r, first := s.locate(edge+1, 0)
	base := r.before()
	s.forget(first)
	for i, ch := range s.chunks {
		all := slices.DeleteFunc(ch.records(), func(r logRecord) bool { return r.at <= edge })
		s.chunks[i] = packRecords(all, ch.newest().upTo-base)
	}
}

// add books n units at now, and forgets the chunks that no policy looks back at.
func (s *logState) add(now, n int64, c *Charge) {
	edge := now - longest(c)
	_, first := s.locate(edge+1, 0)
	if first == len(s.chunks) { // all have left, if there were any
		s.chunks = []logChunk{logRecord{at: now, upTo: n, units: n}.chunk()}
		return
	}
	tail := s.tail()
	if tail.at > now {
		s.pullBack(now)
		tail = s.tail()
	}
	if n > MaxProduct-tail.upTo {
		s.rebase(edge)
		first = 0
		tail = s.tail()
		n = min(n, MaxProduct-tail.upTo)
	}
	last := len(s.chunks) - 1
	r := logRecord{at: now, upTo: tail.upTo + n, units: n}
	if tail.at == now {
		r.units += tail.units
		s.chunks[last] = r.chunk(tail.older)
	} else if n > 0 {
		next := appendEntry(make([]byte, 0, 2*binary.MaxVarintLen64), now-tail.at, tail.units)
		if len(tail.older) < logFull*len(next) {
			s.chunks[last] = r.chunk(next, tail.older)
		} else {
			s.chunks = append(s.chunks, r.chunk())
		}
	}
	s.forget(first)
}

// forget drops the first n chunks. Room is given back once it is mostly empty.
func (s *logState) forget(n int) {
	s.chunks = slices.Delete(s.chunks, 0, n)
	if cap(s.chunks) > 4*len(s.chunks)+8 {
		s.chunks = slices.Clone(s.chunks)
	}
}

func (s *logState) Look(now int64, c *Charge, ds []Decision) bool {
	fits := true
	for j, p := range c.Policies {
		left := p.Limit - s.count(now, p)
		allowed := c.Cost == 0 || c.Cost <= left
		ds[j] = Decision{Allowed: allowed, Limit: p.Limit, Remaining: left, At: now}
		fits = fits && allowed
	}
	return fits
}

func (s *logState) Spend(now int64, c *Charge, ds []Decision) {
	s.add(now, c.Cost, c)
	for j, p := range c.Policies {
		d := &ds[j]
		d.Remaining -= c.Cost
		d.ResetAfter, d.EffectiveWindow = p.Window, p.Window
		if d.Remaining == 0 {
			d.EffectiveWindow = s.leaves(now, p, 0)
		}
	}
}

func (s *logState) Explain(now int64, c *Charge, ds []Decision, repair bool) {
	newest := s.tail().at
	if newest > now {
		if repair {
			s.pullBack(now)
		}
		newest = now
	}
	for j, p := range c.Policies {
		d := &ds[j]
		switch {
		case d.Allowed:
		case c.Cost > d.Limit:
			d.RetryAfter = Never
		default:
			d.RetryAfter = s.leaves(now, p, c.Cost-d.Remaining-1)
		}
		if d.Remaining < d.Limit {
			d.ResetAfter = p.Window - millis(now-newest)
		}
		d.EffectiveWindow = s.leaves(now, p, max(0, -d.Remaining))
		d.Remaining = max(0, d.Remaining)
	}
}

func (s *logState) Settle(now int64, c *Charge, at, delta int64) {
	if delta > 0 {
		s.add(now, delta, c)
		return
	}
	r, i := s.locate(at, 0)
	if i == len(s.chunks) || r.at != at {
		return
	}
	back := min(r.units, -delta)
	total := s.chunks[i].newest().upTo - back
	all := s.chunks[i].records()
	k := slices.IndexFunc(all, func(r logRecord) bool { return r.at == at })
	if all[k].units -= back; all[k].units == 0 {
		all = slices.Delete(all, k, k+1)
	}
	for later, ch := range s.chunks[i+1:] {
		r := ch.newest()
		r.upTo -= back
		s.chunks[i+1+later] = r.chunk(r.older)
	}
	if len(all) > 0 {
		s.chunks[i] = packRecords(all, total)
	} else {
		s.chunks = slices.Delete(s.chunks, i, i+1)
	}
}
