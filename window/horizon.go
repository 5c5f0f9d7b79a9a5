package window

import "time"

// Horizon says how far back a counter is still looked at. Its zero value is that of a
// counter without units.
//
// Requests on one counter can have different windows: a window can come from a
// placeholder, an override or another process's configuration. A charge under a short
// window must not forget what a longer one still needs. A window needs its units from
// each charge under it until one window later.
//
// As long as all charges have one longest window, Window is that window and Till is 0:
// it then follows from the newest unit. Twin of lua/horizon.lua.
type Horizon struct {
	// Units younger than this are kept, in ms.
	Window int64
	// When a charge was under a shorter window: the time up to which Window is needed, in
	// Unix ms. 0: until one Window after the newest unit.
	Till int64
}

// After returns the horizon after a charge at now under a longest window of own ms.
// newest is the time of the counter's newest unit, in Unix ms.
//
// When a window is no longer needed, a quarter of that window takes its place for as long
// as that quarter, then a quarter of that: a window in between may have been used in the
// meantime. Units are thus kept for at most four times as long as a window needs them.
func (h Horizon) After(own, now, newest int64) Horizon {
	if h.Window <= own {
		return Horizon{Window: own}
	}
	if h.Till == 0 {
		h.Till = min(newest, now) + h.Window
	}
	h.Till = min(h.Till, now+h.Window) // a clock can step back
	for h.Till <= now && h.Window > own {
		h.Window /= 4
		h.Till += h.Window
	}
	switch {
	case h.Window <= own:
		return Horizon{Window: own}
	case own >= h.Window/4:
		h.Till = max(h.Till, now+own)
	}
	return h
}

// HorizonKeeper is implemented by algorithms that forget what no window needs. A store
// keeps a Horizon beside their histories.
type HorizonKeeper interface {
	// Newest returns the time of the newest unit in h, in Unix ms. It reports whether there
	// is one: the horizon of a counter without units starts afresh.
	Newest(h History) (at int64, ok bool)
}

// Newest implements HorizonKeeper.
func (ofRecords) Newest(h History) (int64, bool) {
	at, _ := records(h).last()
	return at, len(h) > 0
}

// Newest implements HorizonKeeper.
func (Slices) Newest(h History) (int64, bool) { return slicesState(h).newest().last, len(h) > 0 }

// Newest implements HorizonKeeper.
func (a Layers) Newest(h History) (int64, bool) {
	open := a.read(h).fine.open
	return open.at, open.count > 0
}

// Longest returns how far back the charge looks, in ms: its longest window or, if that is
// longer, Lookback.
func Longest(c *Charge) int64 { return longest(c) }

// longest is Longest.
func longest(c *Charge) int64 {
	ms := c.Lookback.Milliseconds()
	for i := range c.Policies {
		ms = max(ms, int64(c.Policies[i].Window/time.Millisecond))
	}
	return ms
}
