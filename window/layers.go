package window

import (
	"fmt"
	"math"
	"time"
)

// maxLayerFields bounds how many fields a decision on one policy reads.
const maxLayerFields = 1_000

// Layers counts units in slices of two lengths. It decides as strict Slices of
// the fine length do: never over the limit, and a charge is denied for at most one
// fine slice longer than it had to be. To count a window, it takes the sums of the
// coarse slices that lie in it as a whole, and of the coarse slice at its edge the
// fine ones that are still in it: with 10 s over 1 s, that is 17 fields of a
// minute's hash at most, where Slices of 1 s reads 61. A denial looks at the fine
// slices of one more coarse slice, to tell when it ends.
//
// Slices are counted by absolute time, whatever the window: it need not be a
// multiple of either length. When the lengths are changed, the slices that are
// there are fitted into new ones by their last unit.
type Layers struct {
	usual

	// Length of a coarse slice: a whole multiple of Fine, no longer than the
	// shortest window.
	Coarse time.Duration
	// Length of a fine slice, in whole milliseconds.
	Fine time.Duration
}

// check reports what is wrong with the options, in words for an operator.
func (a Layers) check() error {
	switch {
	case a.Fine <= 0, a.Fine%time.Millisecond != 0:
		return fmt.Errorf("fine %s is not a whole number of milliseconds above 0", a.Fine)
	case a.Coarse <= 0, a.Coarse%a.Fine != 0:
		return fmt.Errorf("coarse %s is not a whole multiple of fine %s", a.Coarse, a.Fine)
	}
	return nil
}

// checkPolicy reports a policy that does not go with the options.
func (a Layers) checkPolicy(p Policy) error {
	if a.Coarse > p.Window {
		return fmt.Errorf("coarse %s is longer than the window %s; use a shorter one", a.Coarse, p.Window)
	}
	if fields := int64(p.Window/a.Coarse) + int64(a.Coarse/a.Fine); fields > maxLayerFields {
		return fmt.Errorf("coarse %s and fine %s would make a decision on the window %s read %d fields, where %d is the most; use longer slices, or ones closer in length",
			a.Coarse, a.Fine, p.Window, fields, maxLayerFields)
	}
	return nil
}

// Name implements Algorithm.
func (Layers) Name() string { return "layers" }

// options implements Algorithm: coarse and fine in ms.
func (a Layers) options() []int64 {
	return []int64{a.Coarse.Milliseconds(), a.Fine.Milliseconds()}
}

// layersState is a history, cut into coarse and into fine slices. A coarse slice
// counts what its fine ones do, and its time is that of the first of them. Its History
// has since, the two lengths, how many coarse slices there are, and all slices, in 8 bytes
// for each number.
type layersState struct {
	since        int64 // ms: what was spent earlier is forgotten
	coarse, fine layer
}

func (a Layers) nothing() layersState {
	return layersState{coarse: layer{length: a.Coarse.Milliseconds()}, fine: layer{length: a.Fine.Milliseconds()}}
}

// read returns what h says. Closed slices stay in h until one is added to them.
func (a Layers) read(h History) layersState {
	if len(h) == 0 {
		return a.nothing()
	}
	all := numbers(h)
	s := layersState{since: all.next(), coarse: layer{length: all.next()}, fine: layer{length: all.next()}}
	coarse := all.next() * tallySize
	s.coarse.read(tallies(all[:coarse]))
	s.fine.read(tallies(all[coarse:]))
	return s
}

// write encodes s into h, from which s was read. The closed slices may alias h. That is safe:
// dropping slices moves the rest only towards the front, and adding a coarse slice implies
// that fine.closed was copied out of h.
func (s *layersState) write(h History) History {
	h = h[:0].appendNumbers(s.since, s.coarse.length, s.fine.length, int64(s.coarse.len()))
	return s.fine.appendTo(s.coarse.appendTo(h))
}

// book counts n units in both layers, at a time no earlier than any other.
func (s *layersState) book(at, n int64) {
	isFirst := s.coarse.open.at == s.fine.open.at // the open fine slice of the open coarse one
	if s.fine.add(at, n) {
		if isFirst {
			s.coarse.open.at = at
		}
		s.fine.open.at = at
	}
	s.coarse.add(at, n)
}

// stepped reports whether the clock has stepped back since the last unit.
func (s *layersState) stepped(now int64) bool {
	return s.fine.open.count > 0 && max(s.fine.open.at, s.since) > now
}

// view returns the slices as they look from now: units that lie in the future count as spent
// just now. It returns s itself if no unit lies in the future and the lengths are those of a.
func (s *layersState) view(now int64, a Layers) *layersState {
	if !s.stepped(now) && s.coarse.length == a.Coarse.Milliseconds() && s.fine.length == a.Fine.Milliseconds() {
		return s
	}
	fit, _ := s.refit(now, a, 0, 0)
	return fit
}

// refit books every slice anew, less back units of the slice that counts the
// time at. It reports whether there is one.
func (s *layersState) refit(now int64, a Layers, at, back int64) (*layersState, bool) {
	fit := a.nothing()
	fit.since = min(s.since, now)
	var all []tally
	s.fine.each(math.MinInt64, math.MaxInt64, func(t tally) bool {
		if t.at < s.since {
			return true
		}
		t.at = min(t.at, now)
		if n := len(all); n > 0 && fit.fine.number(all[n-1].at) == fit.fine.number(t.at) {
			all[n-1] = tally{t.at, all[n-1].count + t.count}
		} else {
			all = append(all, t)
		}
		return true
	})
	found := false
	for _, t := range all {
		if back > 0 && fit.fine.number(t.at) == fit.fine.number(at) && at <= t.at {
			t.count -= min(t.count, back)
			found = true
		}
		if t.count > 0 {
			fit.book(t.at, t.count)
		}
	}
	return &fit, found
}

// within returns the first ms that the window holds, and the number of the first
// coarse slice that lies in it as a whole.
func (s *layersState) within(now, window int64) (from, whole int64) {
	from = max(now-window+1, s.since)
	return from, floorDiv(from+s.coarse.length-1, s.coarse.length)
}

// each visits what the window holds, oldest first: the fine slices before the
// first whole coarse one, and then the coarse ones.
func (s *layersState) each(now, window int64, visit func(t tally, whole bool) bool) {
	from, whole := s.within(now, window)
	edge := func(t tally) bool { return t.at < from || visit(t, false) }
	if s.fine.each(s.fine.number(from), whole*(s.coarse.length/s.fine.length)-1, edge) {
		s.coarse.each(whole, math.MaxInt64, func(t tally) bool { return visit(t, true) })
	}
}

func (s *layersState) total(now, window int64) int64 {
	var total int64
	s.each(now, window, func(t tally, _ bool) bool {
		total += t.count
		return true
	})
	return total
}

// falls is that of a decision on the window.
func (s *layersState) falls(now, window, n int64) time.Duration {
	switch {
	case n < 0:
		return millis(window)
	case n == 0:
		return millis(s.fine.open.at + window - now)
	}
	rest := s.total(now, window)
	var edge int64
	var leave func(t tally, whole bool) bool
	leave = func(t tally, whole bool) bool {
		// Where a coarse slice's first unit is not enough, but its last is too
		// much, its fine slices tell.
		if whole && rest-n > 1 && rest-t.count <= n {
			fine := s.coarse.length / s.fine.length
			first := s.coarse.number(t.at) * fine
			return s.fine.each(first, first+fine-1, func(t tally) bool { return leave(t, false) })
		}
		rest -= t.count
		edge = t.at
		return rest > n
	}
	s.each(now, window, leave)
	return millis(edge + window - now)
}

// layersRead returns how many fields a decision reads: the open slices, which share a field, what else is
// kept of the history, and the closed slices that a policy has to look at, whether they are
// there or not.
func layersRead(h History, now int64, c *Charge) int {
	s := c.Algorithm.(Layers).read(h)
	if s.fine.open.count == 0 {
		return 2
	}
	coarse, fine := make(map[int64]bool), make(map[int64]bool)
	for _, p := range c.Policies {
		from, whole := s.within(now, p.Window.Milliseconds())
		for n := s.fine.number(from); n < min(whole*(s.coarse.length/s.fine.length), s.fine.number(s.fine.open.at)); n++ {
			fine[n] = true
		}
		for n := whole; n < s.coarse.number(s.coarse.open.at); n++ {
			coarse[n] = true
		}
	}
	return 2 + len(coarse) + len(fine)
}

func (a Layers) empty(h History) bool {
	s := a.read(h)
	return s.fine.open.count == 0
}

func (a Layers) newest(h History) (int64, bool) {
	open := a.read(h).fine.open
	return open.at, open.count > 0
}

func (a Layers) look(h History, now int64, c *Charge, ds []Decision) bool {
	s := a.read(h)
	view := s.view(now, a)
	return look(now, c, ds, func(j int) int64 { return view.total(now, c.Policies[j].Window.Milliseconds()) })
}

func (a Layers) spend(h History, now int64, c *Charge, ds []Decision) History {
	kept := a.read(h)
	s := kept.view(now, a)
	s.add(now, c.Cost, c)
	spent(c, ds, func(j int, n int64) time.Duration { return s.falls(now, c.Policies[j].Window.Milliseconds(), n) })
	return s.write(h)
}

func (a Layers) explain(h History, now int64, c *Charge, ds []Decision, repair bool) History {
	s := a.read(h)
	view := s.view(now, a)
	if repair && s.stepped(now) {
		h = view.write(h)
	}
	explain(c, ds, func(j int, n int64) time.Duration { return view.falls(now, c.Policies[j].Window.Milliseconds(), n) })
	return h
}

func (a Layers) chargeMore(h History, now int64, c *Charge, units int64) History {
	kept := a.read(h)
	s := kept.view(now, a)
	s.add(now, units, c)
	return s.write(h)
}

func (a Layers) giveBack(h History, now int64, _ *Charge, at, units int64) History {
	kept := a.read(h)
	if fit, found := kept.refit(now, a, at, units); found || kept.stepped(now) {
		return fit.write(h)
	}
	return h
}

// add books n units at now, after it dropped the slices that no policy sees.
func (s *layersState) add(now, n int64, c *Charge) {
	since := now - c.Longest() + 1
	if s.fine.open.count == 0 {
		s.since = since
	} else if since > s.since {
		s.coarse.drop(since)
		s.fine.drop(since)
		if s.fine.open.at < since {
			s.coarse.open, s.fine.open = tally{}, tally{}
		}
		s.since = since
	}
	s.book(now, n)
}

// floorDiv is the division that rounds down, below 0, too.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
