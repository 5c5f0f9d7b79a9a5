package overridebook

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// A look sends the order of this Caddy that the store lacks, and has one zone of a name obey an order of another
// Caddy, once. An order that the store has lost, or has replaced by an earlier one, is written again.
func TestOrders(t *testing.T) {
	server := redistest.Start(t)
	b := New(onRedis(t, server.Addr))
	var obeyed []string
	one, other := newZone(t), newZone(t)
	other.Orders = one.Orders
	for _, z := range []*Subscriber{one, other} {
		z.ApplyRemote = func(o enforce.Order) { obeyed = append(obeyed, o.Mode) }
		b.zones[z] = struct{}{}
	}
	inStore := func() string {
		t.Helper()
		_, orders, err := b.shared.ExchangeOrders(t.Context(), nil, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return orders[t.Name()]
	}
	write := func(order string) {
		t.Helper()
		if err := server.Client(t).HSet(t.Context(), "sw:{enforce}", t.Name(), order).Err(); err != nil {
			t.Fatal(err)
		}
	}
	order := func(s *enforce.Sync, mode string) {
		t.Helper()
		if err := s.Make(b.clock.Now(), enforce.Order{Mode: mode}, time.Hour, func(enforce.Order) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	follow := func() {
		t.Helper()
		for range 2 {
			if err := b.Follow(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	order(one.Orders, "shadow")
	follow()
	own := inStore()
	if enforce.ParseOrder(own).Mode != "shadow" || len(obeyed) != 0 {
		t.Errorf("the store has %q, want the own order; obeyed %v", own, obeyed)
	}
	server.Client(t).FlushAll(t.Context())
	follow()
	if got := inStore(); got != own {
		t.Errorf("after the loss, the store has %q, want %q", got, own)
	}
	var elsewhere enforce.Sync
	order(&elsewhere, "on")
	foreign, _ := elsewhere.Observe("", b.clock.Now(), nil)
	write(foreign)
	follow()
	if want := []string{"on"}; !slices.Equal(obeyed, want) || inStore() != foreign {
		t.Errorf("obeyed %v, want %v", obeyed, want)
	}
	write(own)
	follow()
	if got := inStore(); len(obeyed) != 1 || got != foreign {
		t.Errorf("after an earlier order came back: obeyed %v, the store has %q, want %q", obeyed, got, foreign)
	}
}
