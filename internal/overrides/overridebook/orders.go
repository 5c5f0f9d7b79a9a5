package overridebook

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/storestate"
)

// errOrders is returned if others write orders all the time.
var errOrders = errors.New("the orders in the store change all the time")

// Follow takes up the orders that the store has for zones, and writes those that it lacks: of the orders for a zone, the
// one with the latest time holds everywhere. If a store has lost an order, each Caddy that knows it writes it again. From
// Begin to End the book follows by itself. A store without a server has no orders.
func (b *Book) Follow(ctx context.Context) error {
	if b.shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	var known, next map[string]string
	var again []string
	for range 5 {
		orders, err := b.exchange(ctx, known, next)
		if err != nil {
			return err
		}
		for _, zone := range again {
			if orders[zone] == next[zone] {
				storestate.Logger(b.name).Warn("the store had lost how operators have a zone enforced; it was written again", zap.String("zone", zone))
			}
		}
		known, next, again = orders, make(map[string]string), nil
		for _, z := range b.zonesByName() {
			text, lost := z.Orders.Observe(orders[z.Name], b.clock.Now(), z.ApplyRemote)
			if text != "" {
				next[z.Name] = text
			}
			if lost {
				again = append(again, z.Name)
			}
		}
		if len(next) == 0 {
			return nil
		}
	}
	return errOrders
}

// zonesByName returns one zone of each name.
func (b *Book) zonesByName() (zones []*Subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for z := range b.zones {
		if !slices.ContainsFunc(zones, func(o *Subscriber) bool { return o.Name == z.Name }) {
			zones = append(zones, z)
		}
	}
	return zones
}

// exchange writes orders in the place of known ones, and returns those that the store has then. The clock learns what time
// it is there.
func (b *Book) exchange(ctx context.Context, known, next map[string]string) (orders map[string]string, err error) {
	asked := uptime.Now()
	now, orders, err := b.shared.ExchangeOrders(ctx, known, next, enforce.Longest)
	if err != nil {
		return nil, err
	}
	answered := uptime.Now()
	if answered-asked > longestLook { // this process did not run for a while, and the time of the store is unknown
		return nil, context.DeadlineExceeded
	}
	if moved := b.clock.Learn(now, asked, answered); moved.Abs() >= notable {
		b.moved(moved)
	}
	return orders, nil
}

// moved makes what ends by the clock look at it again.
func (b *Book) moved(by time.Duration) {
	for _, z := range b.zonesByName() {
		z.Orders.Shift(by, z.ApplyRemote)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apply(b.clock.Now())
}
