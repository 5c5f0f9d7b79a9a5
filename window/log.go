package window

import (
	"slices"
	"sort"
	"time"
)

// Log is the exact sliding-window log like Zset, packed: two to four bytes per
// event, and one to four for a cost from 2 to 100 million. In Redis it is a list of chunks of records; see
// log.lua for the layout, which is the same here but for the expiry.
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

// logFull is how many entries a chunk gets, as if all were as long as the next.
const logFull = 32

// logStale is how many bytes of the oldest chunk may have left the longest window
// before it is written anew for that alone.
const logStale = 16

// logState holds the chunks, oldest first.
type logState struct{ chunks []logChunk }

// tail returns the newest chunk, or an empty part.
func (s *logState) tail() logPart {
	if len(s.chunks) == 0 {
		return logPart{}
	}
	return s.chunks[len(s.chunks)-1].part()
}

// locate finds the oldest record at t or later up to and with which there are
// more than k units. It returns the chunk from that record on, and the chunk's index,
// which is len(s.chunks) if there is none.
func (s *logState) locate(t, k int64) (p logPart, i int) {
	i = sort.Search(len(s.chunks), func(i int) bool {
		all := s.chunks[i].part()
		return all.newest.at >= t && all.upTo > k
	})
	if i == len(s.chunks) {
		return p, i
	}
	return s.chunks[i].part().from(t, k), i
}

func (s *logState) count(now int64, p Policy) int64 {
	rest, i := s.locate(now-p.Window.Milliseconds()+1, 0)
	if i == len(s.chunks) {
		return 0
	}
	return s.tail().upTo - rest.before()
}

// leaves returns the time until more than the k oldest units of the policy's
// window have left it; the whole window if there are no more.
func (s *logState) leaves(now int64, p Policy, k int64) time.Duration {
	rest, i := s.locate(now-p.Window.Milliseconds()+1, s.tail().upTo-s.count(now, p)+k)
	if i == len(s.chunks) {
		return p.Window
	}
	return p.Window - millis(now-min(rest.oldest(), now))
}

// pullBack moves everything that lies in the future to now.
func (s *logState) pullBack(now int64) {
	total := s.tail().upTo
	future, i := s.locate(now, 0)
	all := slices.DeleteFunc(s.chunks[i].part().records(), func(r logRecord) bool { return r.at >= now })
	s.chunks[i] = packRecords(append(all, logRecord{now, total - future.before()}), total)
	s.chunks = slices.Delete(s.chunks, i+1, len(s.chunks))
}

// rebase makes room for running totals: it forgets all that was spent at or
// before edge, and counts from there.
func (s *logState) rebase(edge int64) {
	rest, first := s.locate(edge+1, 0)
	base := rest.before()
	s.forget(first)
	for i, ch := range s.chunks {
		p := ch.part()
		if i == 0 {
			p = rest
		}
		p.upTo -= base
		s.chunks[i] = p.chunk()
	}
}

// add books n units at now, and forgets what no policy looks back at: whole chunks,
// and the beginning of one where that is much or it is written anyway.
func (s *logState) add(now, n int64, c *Charge) {
	edge := now - longest(c)
	if s.tail().newest.at > now {
		s.pullBack(now)
	}
	if tail := s.tail(); tail.newest.at > edge && n > MaxProduct-tail.upTo {
		s.rebase(edge)
		if n = min(n, MaxProduct-s.tail().upTo); n == 0 {
			return
		}
	}
	rest, first := s.locate(edge+1, 0)
	if first == len(s.chunks) { // all have left, if there were any
		s.chunks = []logChunk{logPart{newest: logRecord{now, n}, upTo: n}.chunk()}
		return
	}
	last, tail := len(s.chunks)-1, s.tail()
	if first == last {
		tail = rest
	}
	written := tail.add(now, n)
	if written == nil {
		s.chunks = append(s.chunks, logPart{newest: logRecord{now, n}, upTo: tail.upTo + n}.chunk())
	} else {
		s.chunks[last] = written
	}
	if first < last {
		if stale := len(s.chunks[first].part().entries) - len(rest.entries); stale > logStale {
			s.chunks[first] = rest.chunk()
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
	newest := s.tail().newest.at
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
	rest, i := s.locate(at, 0)
	if i == len(s.chunks) || rest.oldest() != at {
		return
	}
	whole := s.chunks[i].part()
	all := whole.records()
	k := slices.IndexFunc(all, func(r logRecord) bool { return r.at == at })
	back := min(all[k].units, -delta)
	if all[k].units -= back; all[k].units == 0 {
		all = slices.Delete(all, k, k+1)
	}
	for later, ch := range s.chunks[i+1:] {
		p := ch.part()
		p.upTo -= back
		s.chunks[i+1+later] = p.chunk()
	}
	if len(all) > 0 {
		s.chunks[i] = packRecords(all, whole.upTo-back)
	} else {
		s.chunks = slices.Delete(s.chunks, i, i+1)
	}
}
