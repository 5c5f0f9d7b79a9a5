package enforce

import (
	"encoding/json"
	"sync"
	"time"
)

// Longest is the longest that an operator may have a zone enforced otherwise than it is
// configured: what is meant to last belongs into the configuration.
const Longest = 30 * 24 * time.Hour

// Config is the word for what the configuration says.
const Config = "config"

// Order has a zone enforced in a way on every Caddy that shares its store. The store has the last one of
// each zone, as JSON. An order that has gone from the store changes nothing.
type Order struct {
	Mode   string    `json:"mode"`
	Until  time.Time `json:"until"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// Sync is what a process knows of the order that the store has for a zone.
type Sync struct {
	mu     sync.Mutex // guards all; held for a few instructions
	heard  string     // the last order of the store's
	before string     // the one before: an answer that was under way may still hold it
	unsent string     // an order that the store does not have yet; empty: none
}

// Order notes an order of this Caddy that holds here, until it is sent.
func (e *Sync) Order(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unsent = text
}

// Sent notes that the store has an order.
func (e *Sync) Sent(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text != e.heard {
		e.before, e.heard = e.heard, text
	}
	if e.unsent == text {
		e.unsent = ""
	}
}

// Hear notes the order that the store has. It reports whether that is new, and returns the one of this Caddy that is
// to be sent in its place; empty without one. Of these two the later one holds.
func (e *Sync) Hear(text string) (isNew bool, unsent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	isNew = text != "" && text != e.heard && text != e.before
	if isNew {
		e.before, e.heard = e.heard, text
	}
	if e.unsent != "" && isNew && ParseOrder(text).At.After(ParseOrder(e.unsent).At) {
		e.unsent = ""
	}
	return isNew && e.unsent == "", e.unsent
}

// ParseOrder reads an order. Its mode is empty if text is not an order.
func ParseOrder(text string) (o Order) {
	if json.Unmarshal([]byte(text), &o) != nil {
		return Order{}
	}
	return o
}

// HoldsFrom returns the order as it holds from a time on: Longest at most. It reports false if the order holds no longer, or
// is not an order.
func (o Order) HoldsFrom(now time.Time) (Order, bool) {
	if o.Mode == "" || !now.Before(o.Until) {
		return o, false
	}
	if until := now.Add(Longest); o.Until.After(until) {
		o.Until = until
	}
	return o, true
}

// NewOrder returns an order that is made now, as the store keeps it. One for what is configured lasts as long as any before it.
func NewOrder(now time.Time, mode string, until time.Time, reason string) string {
	if mode == Config {
		until = now.Add(Longest)
	}
	text, _ := json.Marshal(Order{mode, until.UTC(), now.UTC(), reason}) // it has no error
	return string(text)
}
