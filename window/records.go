package window

import (
	"encoding/binary"
	"slices"
	"time"
)

// A chunk holds at most logAlone entries if it is the only one, else logFull, each counted
// with the length of the entry that is added.
const (
	logFull  = 64
	logAlone = 128
)

// last returns the time of the newest record, and the running total; 0, 0 if h is empty.
func (h records) last() (newestAt, total int64) {
	if len(h) == 0 {
		return 0, 0
	}
	p := h.newest()
	ch := logChunk(h[p.from:p.to])
	return ch.newestAt(), ch.upTo()
}

// locate finds the oldest record that is at t or later and has a running total above k. It
// returns the place of its chunk, and sets rest to the chunk from that record on. If no
// record qualifies, the place is nowhere and rest is unchanged.
func (h records) locate(t, k int64, rest *logPart) place {
	p := h.first(t, k)
	if !p.nowhere() {
		rest.read(logChunk(h[p.from:p.to]))
		rest.skip(t, k)
	}
	return p
}

// count returns how many units the policy's window holds.
func (h records) count(now int64, p Policy) int64 {
	var rest logPart
	if at := h.locate(now-p.Window.Milliseconds()+1, 0, &rest); at.nowhere() {
		return 0
	}
	_, total := h.last()
	return total - rest.before()
}

// falls is that of a decision on the policy.
func (h records) falls(now int64, p Policy, n int64) time.Duration {
	var rest logPart
	newest, total := h.last()
	if n == 0 {
		return p.Window - millis(now-min(newest, now))
	}
	if at := h.locate(now-p.Window.Milliseconds()+1, total-n-1, &rest); at.nowhere() {
		return p.Window
	}
	return p.Window - millis(now-min(rest.oldest(), now))
}

// add books n units at now, which is not before any others, and forgets what was spent
// at the edge or before. Units above 2^53 in all are not counted.
func (h records) add(now, n, edge int64) records {
	if newest, total := h.last(); newest > edge && n > MaxProduct-total {
		h = h.rebase(edge)
		_, total = h.last()
		if n = min(n, MaxProduct-total); n == 0 {
			return h
		}
	}
	var rest logPart
	first := h.locate(edge+1, 0, &rest)
	if first.nowhere() { // all have left, if there were any
		return h.only(&logPart{newest: logRecord{now, n}, upTo: n})
	}
	last, tail, full := h.newest(), rest, logAlone
	if first != last {
		tail, full = h.part(last), logFull
	}
	var room [2 * binary.MaxVarintLen64]byte
	entry, fits := tail.add(now, n, full, room[:0])
	if fits && first == last {
		return h.only(&tail, entry...)
	}
	rewrite := len(h.part(first).entries) > len(rest.entries)
	if h[0] == 0 && rewrite {
		h, rewrite = h.only(&rest), false
	}
	if fits {
		h = h.replaceNewest(last, &tail, entry...)
	} else {
		next := logPart{newest: logRecord{now, n}, upTo: tail.upTo}
		h = h.push(next.appendTo(nil))
	}
	if first.from == beforeOne {
		return h
	}
	if rewrite {
		first = h.shorten(first, &rest)
	}
	return h.forget(first)
}

// rebase makes room for running totals: it forgets all that was spent at the edge or
// before, and counts from there. Something was spent later.
func (h records) rebase(edge int64) records {
	var rest logPart
	first := h.locate(edge+1, 0, &rest)
	base := rest.before()
	for p := h.next(first); !p.nowhere(); p = h.next(p) {
		ch := logChunk(h[p.from:p.to])
		ch.setUpTo(ch.upTo() - base)
	}
	rest.upTo -= base
	if first == h.newest() {
		return h.only(&rest)
	}
	return h.forget(h.shorten(first, &rest))
}

// pullBack moves everything that lies in the future to now. There is something.
func (h records) pullBack(now int64) records {
	var future logPart
	_, total := h.last()
	p := h.locate(now, 0, &future)
	whole := h.part(p)
	past := slices.DeleteFunc(whole.records(), func(r logRecord) bool { return r.at >= now })
	part := partOf(append(past, logRecord{now, total - future.before()}), total)
	if p == h.oldest() {
		return h.only(&part)
	}
	return h.replaceNewest(p, &part)
}

// giveBack takes up to n of the units that were spent at a time.
func (h records) giveBack(at, n int64) records {
	var rest logPart
	p := h.locate(at, 0, &rest)
	if p.nowhere() || rest.oldest() != at {
		return h
	}
	whole := h.part(p)
	all := whole.records()
	k := slices.IndexFunc(all, func(r logRecord) bool { return r.at == at })
	back := min(all[k].units, n)
	if all[k].units -= back; all[k].units == 0 {
		all = slices.Delete(all, k, k+1)
	}
	for later := h.next(p); !later.nowhere(); later = h.next(later) {
		ch := logChunk(h[later.from:later.to])
		ch.setUpTo(ch.upTo() - back)
	}
	if len(all) == 0 {
		return h.replace(p, nil)
	}
	part := partOf(all, whole.upTo-back)
	return h.replace(p, part.appendTo(nil))
}

// all returns all records.
func (h records) all() []logRecord {
	var all []logRecord
	for p := h.oldest(); !p.nowhere(); p = h.next(p) {
		part := h.part(p)
		all = append(all, part.records()...)
	}
	return all
}

// addBehind books n units at now, to where it moves those that lie in the future.
func addBehind(h records, now, n int64, c *Charge) records {
	if newest, _ := h.last(); newest > now {
		h = h.pullBack(now)
	}
	return h.add(now, n, now-c.Longest())
}

// ofRecords is what algorithms have in common that keep records. Zset books them in another place.
type ofRecords struct{ usual }

func (ofRecords) look(h History, now int64, c *Charge, ds []Decision) bool {
	return look(now, c, ds, func(j int) int64 { return records(h).count(now, c.Policies[j]) })
}

func (ofRecords) spend(h History, now int64, c *Charge, ds []Decision) History {
	return addBehind(records(h), now, c.Cost, c).complete(now, c, ds)
}

func (ofRecords) giveBack(h History, _ int64, _ *Charge, at, units int64) History {
	return History(records(h).giveBack(at, units))
}

func (ofRecords) chargeMore(h History, now int64, c *Charge, units int64) History {
	return History(addBehind(records(h), now, units, c))
}

func (ofRecords) explain(history History, now int64, c *Charge, ds []Decision, repair bool) History {
	h := records(history)
	if newest, _ := h.last(); repair && newest > now {
		h = h.pullBack(now)
	}
	explain(c, ds, func(j int, n int64) time.Duration { return h.falls(now, c.Policies[j], n) })
	return History(h)
}

// complete completes the decisions on a charge that h has.
func (h records) complete(now int64, c *Charge, ds []Decision) History {
	spent(c, ds, func(j int, n int64) time.Duration { return h.falls(now, c.Policies[j], n) })
	return History(h)
}

func (ofRecords) empty(h History) bool { return len(h) == 0 }

func (ofRecords) newest(h History) (int64, bool) {
	at, _ := records(h).last()
	return at, len(h) > 0
}
