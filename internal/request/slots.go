package request

import (
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/zone"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// slots are what a request holds in the zones of a handler that count requests at the same time. A handler without such zones
// has nil, for which the methods do nothing.
type slots struct {
	store    *openstore.SharedStore
	all      []*slot
	hijacked bool // they are held until the connection is closed
}

// next adds a slot.
func (s *slots) next(z *zone.Live, c *window.Charge, free func(window.Charge)) *slot {
	s.all = append(s.all, &slot{zone: z, charge: *c, free: free})
	return s.all[len(s.all)-1]
}

// add adds what a request that passes holds: nothing where no store decided.
func (s *slots) add(req *request) {
	if s == nil || !req.allowed || len(req.decisions) == 0 {
		return
	}
	for i, z := range req.zones {
		if z.Held {
			s.store.Hold()
			s.next(z, &req.charges[i], s.store.Free).take()
		}
	}
}

// addShadow adds what a request comes to hold in a zone that does not deny it, if the zone admits it.
func (s *slots) addShadow(r *shadowed) {
	c := &r.charge
	if r.own() > len(c.Policies) {
		c = &r.wider[0].Charge
	}
	if s != nil && engine.IsHeld(c) {
		r.slot = s.next(r.zone.Live, c, s.store.Shadow.Free)
	}
}

// none reports whether nothing is held.
func (s *slots) none() bool { return s == nil || len(s.all) == 0 }

// begun frees what is held until the answer begins, unless the connection is upgraded, and all if a later handler has denied
// the request.
func (s *slots) begun(upgraded, denied bool) {
	for _, held := range s.all {
		if denied || held.untilStatus() && !upgraded {
			held.over()
		}
	}
}

// end frees what is held when the handlers have returned, or panicked, unless they have taken the connection over.
func (s *slots) end() {
	if s != nil && !s.hijacked {
		s.closed()
	}
}

// closed frees what is held when a connection is closed.
func (s *slots) closed() {
	for _, held := range s.all {
		held.over()
	}
}

// slot is the unit that a request holds in a zone, from when the zone admits it until the request is over. The decision of a
// zone that does not deny it may come later than that.
type slot struct {
	zone   *zone.Live
	charge window.Charge
	free   func(window.Charge)
	since  time.Duration
	state  atomic.Int32
}

// What has happened to a slot. The second of both frees it.
const (
	slotTaken = 1 << iota
	slotOver
)

// take notes that the zone has admitted the request.
func (s *slot) take() {
	s.zone.Counters.Open.Inc()
	s.since = uptime.Now()
	if s.state.Or(slotTaken) == slotOver {
		s.end()
	}
}

// over notes that the request is over. Only the first call counts.
func (s *slot) over() {
	if s.state.Or(slotOver) == slotTaken {
		s.end()
	}
}

func (s *slot) end() {
	s.zone.Counters.Open.Dec()
	s.zone.Counters.Held.Observe((uptime.Now() - s.since).Seconds())
	s.free(s.charge)
}

// untilStatus reports whether the slot is free once the answer begins.
func (s *slot) untilStatus() bool {
	return s.zone.UntilStatus || s.zone.Concurrent != nil && s.zone.Concurrent.UntilStatus
}
