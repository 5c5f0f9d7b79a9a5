package slidingwindow

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/storestate"
)

// enforceConfig is the word for what the configuration says.
const enforceConfig = "config"

// enforceOrder has a zone enforced in a way on every Caddy that shares its store. The store has the last one of
// each zone, as JSON. An order that has gone from the store changes nothing.
type enforceOrder struct {
	Mode   string    `json:"mode"`
	Until  time.Time `json:"until"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// enforceSync is what a process knows of the order that the store has for a zone.
type enforceSync struct {
	mu     sync.Mutex // guards all; held for a few instructions
	heard  string     // the last order of the store's
	before string     // the one before: an answer that was under way may still hold it
	unsent string     // an order that the store does not have yet; empty: none
}

// order notes an order of this Caddy that holds here, until it is sent.
func (e *enforceSync) order(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unsent = text
}

// sent notes that the store has an order.
func (e *enforceSync) sent(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text != e.heard {
		e.before, e.heard = e.heard, text
	}
	if e.unsent == text {
		e.unsent = ""
	}
}

// hear notes the order that the store has. It reports whether that is new, and returns the one of this Caddy that is
// to be sent in its place; empty without one. Of these two the later one holds.
func (e *enforceSync) hear(text string) (isNew bool, unsent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	isNew = text != "" && text != e.heard && text != e.before
	if isNew {
		e.before, e.heard = e.heard, text
	}
	if e.unsent != "" && isNew && parseOrder(text).At.After(parseOrder(e.unsent).At) {
		e.unsent = ""
	}
	return isNew && e.unsent == "", e.unsent
}

// parseOrder reads an order. Its mode is empty if text is not an order.
func parseOrder(text string) (o enforceOrder) {
	if json.Unmarshal([]byte(text), &o) != nil {
		return enforceOrder{}
	}
	return o
}

// newOrder returns an order as the store keeps it. One for what is configured lasts as long as any before it.
func newOrder(mode string, until time.Time, reason string) string {
	now := time.Now()
	if mode == enforceConfig {
		until = now.Add(maxEnforce)
	}
	text, _ := json.Marshal(enforceOrder{mode, until.UTC(), now.UTC(), reason}) // it has no error
	return string(text)
}

// follow takes up the orders that the store has, by zone, and sends those that it lacks.
func (b *overrideBook) follow(ctx context.Context, orders map[string]string) {
	b.mu.Lock()
	var zones []*runningZone // one of each name
	for z := range b.zones {
		if !slices.ContainsFunc(zones, func(o *runningZone) bool { return o.zone.Name == z.zone.Name }) {
			zones = append(zones, z)
		}
	}
	b.mu.Unlock()
	unsent := make(map[string]string)
	for _, z := range zones {
		isNew, own := z.zone.control.sync.hear(orders[z.zone.Name])
		if own != "" {
			unsent[z.zone.Name] = own
		}
		if isNew {
			z.obey(b.name, parseOrder(orders[z.zone.Name]))
		}
	}
	_ = b.send(ctx, zones, unsent) // again at the next look
}

// obey has a zone enforced as an operator has told another Caddy.
func (z *runningZone) obey(store string, o enforceOrder) {
	now := time.Now()
	if o.Mode == "" || !now.Before(o.Until) {
		return
	}
	logger := storestate.Logger(store).With(zap.String("zone", z.zone.Name), zap.String("enforce", o.Mode), zap.String("reason", o.Reason))
	if until := now.Add(maxEnforce); o.Until.After(until) {
		o.Until = until
	}
	if err := z.zone.setEnforce(o.Mode, o.Until); err != nil {
		logger.Warn("enforcement of zone that was changed at another Caddy cannot hold in this one", zap.Error(err))
		return
	}
	logger.Info("enforcement of zone was changed at another Caddy", zap.Time("until", o.Until))
	word, until := z.zone.enforcedNow()
	emitEnforced(z.id(), word, until, o.Reason)
}

// send gives orders, by zone, to the Caddys that share the store.
func (b *overrideBook) send(ctx context.Context, zones []*runningZone, orders map[string]string) error {
	if b.shared == nil || len(orders) == 0 {
		return nil
	}
	if err := b.shared.WriteEnforce(ctx, orders, maxEnforce); err != nil {
		return err
	}
	for _, z := range zones {
		if text := orders[z.zone.Name]; text != "" {
			z.zone.control.sync.sent(text)
		}
	}
	return nil
}
