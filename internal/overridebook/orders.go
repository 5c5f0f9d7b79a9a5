package overridebook

import (
	"context"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/uptime"
)

// exchange writes orders in the place of known ones, and returns those that the store has then. The clock learns what time
// it is there.
func (b *Book) exchange(ctx context.Context, known, next map[string]string) (orders map[string]string, err error) {
	asked := uptime.Now()
	now, orders, err := b.shared.ExchangeOrders(ctx, known, next, enforce.Longest)
	if err != nil {
		return nil, err
	}
	if moved := b.clock.Learn(now, asked, uptime.Now()); moved.Abs() >= notable {
		b.mu.Lock()
		b.apply(b.clock.Now())
		b.mu.Unlock()
	}
	return orders, nil
}

// follow takes up the orders that the store has, by zone, and sends those that it lacks.
func (b *Book) follow(ctx context.Context) error {
	orders, err := b.exchange(ctx, nil, nil)
	if err != nil {
		return err
	}
	b.mu.Lock()
	var zones []*Zone // one of each name
	for z := range b.zones {
		if !slices.ContainsFunc(zones, func(o *Zone) bool { return o.Name == z.Name }) {
			zones = append(zones, z)
		}
	}
	b.mu.Unlock()
	unsent := make(map[string]string)
	for _, z := range zones {
		isNew, own := z.Orders.Hear(orders[z.Name])
		if own != "" {
			unsent[z.Name] = own
		}
		if isNew {
			z.Obey(b.name, enforce.ParseOrder(orders[z.Name]))
		}
	}
	return b.Send(ctx, zones, unsent)
}

// Send gives orders, by zone, to the Caddys that share the store.
func (b *Book) Send(ctx context.Context, zones []*Zone, orders map[string]string) error {
	if b.shared == nil || len(orders) == 0 {
		return nil
	}
	known, err := b.exchange(ctx, nil, nil)
	if err == nil {
		_, err = b.exchange(ctx, known, orders)
	}
	if err != nil {
		return err
	}
	for _, z := range zones {
		if text := orders[z.Name]; text != "" {
			z.Orders.Sent(text)
		}
	}
	return nil
}
