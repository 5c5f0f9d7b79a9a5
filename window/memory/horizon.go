package memory

// horizon says how far back a counter is still looked at. Its zero value is that of a
// counter without units.
//
// Requests on one counter can have different windows: a window can come from a
// placeholder, an override or another process's configuration. A charge under a short
// window must not forget what a longer one still needs. A window needs its units from
// each charge under it until one window later.
//
// As long as all charges have one longest window, Window is that window and Till is 0:
// it then follows from the newest unit. Twin of lua/horizon.lua.
type horizon struct {
	// Units younger than this are kept, in ms.
	window int64
	// When a charge was under a shorter window: the time up to which Window is needed, in
	// Unix ms. 0: until one Window after the newest unit.
	till int64
}

// after returns the horizon after a charge at now under a longest window of own ms.
// newest is the time of the counter's newest unit, in Unix ms.
//
// When a window is no longer needed, a quarter of that window takes its place for as long
// as that quarter, then a quarter of that: a window in between may have been used in the
// meantime. Units are thus kept for at most four times as long as a window needs them.
func (h horizon) after(own, now, newest int64) horizon {
	if h.window <= own {
		return horizon{window: own}
	}
	if h.till == 0 {
		h.till = min(newest, now) + h.window
	}
	h.till = min(h.till, now+h.window) // a clock can step back
	for h.till <= now && h.window > own {
		h.window /= 4
		h.till += h.window
	}
	switch {
	case h.window <= own:
		return horizon{window: own}
	case own >= h.window/4:
		h.till = max(h.till, now+own)
	}
	return h
}
