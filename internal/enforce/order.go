package enforce

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// Longest is the longest that an operator may have a zone enforced otherwise than it is
// configured: what is meant to last belongs into the configuration.
const Longest = 30 * 24 * time.Hour

// Config is the word for what the configuration says.
const Config = "config"

// Order says how a zone is enforced on every Caddy that shares its store. The store has the last one of
// each zone, as JSON. All times are by the clock of the store.
type Order struct {
	Mode  string    `json:"mode"`
	Until time.Time `json:"until"`
	// At is when the order was made, in microseconds, and later than the zone's order before it: only an order with a
	// later At replaces another one.
	At time.Time `json:"at"`
	// All is set if the order names all zones at once. A zone that cannot be in shadow is exempt then.
	All bool `json:"all,omitempty"`
	control.Why
	// Own is set if an operator told this Caddy.
	Own bool `json:"-"`
}

// Sync has the latest order for a zone that this process knows: its own, or one that the store had. An order
// that has ended, and one that has gone from the store, is still the latest: an earlier one that appears in the store, as
// from a snapshot, is not obeyed, and is replaced.
type Sync struct {
	mu     sync.Mutex // guards all, and is held while an order is obeyed: else an earlier one could be obeyed last
	latest Order
	text   string    // the latest as the store keeps it; empty: no order
	stored bool      // the store has or had the latest
	before time.Time // At of the last order that was stored
}

// Make makes an order of this Caddy, which holds from now on, and for a time or, as what is configured does, as long as any
// before it. There is no order if obey returns an error.
func (s *Sync) Make(now time.Time, o Order, ttl time.Duration, obey func(Order) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Mode == Config {
		ttl = Longest
	}
	o.Until, o.At, o.Own = now.Add(ttl).UTC(), atAfter(now, s.latest.At), true
	if err := obey(o); err != nil {
		return err
	}
	if s.stored {
		s.before = s.latest.At
	}
	s.take(o, o.text(), false)
	return nil
}

// Shift shifts begin and end of an order that the store does not have yet by as much as the clock has moved: the order was made
// when this Caddy did not know the time of the store.
func (s *Sync) Shift(by time.Duration, obey func(Order)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == "" || s.stored {
		return
	}
	o := s.latest
	o.At, o.Until = atAfter(o.At.Add(by), s.before), o.Until.Add(by)
	s.take(o, o.text(), false)
	obey(o)
}

// Observe notes the order that the store has, empty without one, and obeys it if it is later than the latest. If it is
// earlier, Observe returns the latest, which has to be written in its place, and whether the store has had that before. It returns
// an empty text if there is nothing to write: no order matters any more Longest after it was made.
func (s *Sync) Observe(text string, now time.Time, obey func(Order)) (next string, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := ParseOrder(text)
	switch {
	case text == s.text:
		s.stored = true
		return "", false
	case o.Mode != "" && (o.At.After(s.latest.At) || o.At.Equal(s.latest.At) && text > s.text):
		s.take(o, text, true)
		obey(o)
		return "", false
	case !now.Before(s.latest.At.Add(Longest)):
		return "", false
	}
	return s.text, s.stored
}

// take notes the latest order. s.mu is held.
func (s *Sync) take(o Order, text string, stored bool) { s.latest, s.text, s.stored = o, text, stored }

// atAfter returns a time as At of an order that follows one with another At.
func atAfter(at, before time.Time) time.Time {
	at = at.UTC().Truncate(time.Microsecond)
	if !at.After(before) {
		return before.Add(time.Microsecond)
	}
	return at
}

// text returns the order as the store keeps it.
func (o Order) text() string {
	text, _ := json.Marshal(o) // it has no error
	return string(text)
}

// ParseOrder reads an order. Its mode is empty if text is not an order.
func ParseOrder(text string) (o Order) {
	if json.Unmarshal([]byte(text), &o) != nil || o.At.IsZero() {
		return Order{}
	}
	return o
}

// HoldsAt returns the order as it holds at a time: until Longest after it was made at most. What is configured holds in
// place of an order that has ended.
func (o Order) HoldsAt(now time.Time) Order {
	if until := o.At.Add(Longest); o.Until.After(until) {
		o.Until = until
	}
	if !now.Before(o.Until) {
		o.Mode = Config
	}
	return o
}
