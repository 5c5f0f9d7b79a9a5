package overridebook

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

// A look sends the order of this Caddy that the store lacks, and has one zone of a name obey an order of another
// Caddy, once.
func TestOrders(t *testing.T) {
	b := New(onRedis(t, redistest.Start(t).Addr))
	var obeyed []string
	one, other := newZone(t), newZone(t)
	other.Orders = one.Orders
	for _, z := range []*Zone{one, other} {
		z.Obey = func(store string, o enforce.Order) { obeyed = append(obeyed, store+" "+o.Mode) }
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
	own := enforce.NewOrder(time.Now(), "shadow", time.Now().Add(time.Hour), "")
	one.Orders.Order(own)
	for range 2 {
		b.Look(t.Context())
	}
	if got := inStore(); got != own || len(obeyed) != 0 {
		t.Errorf("the store has %q, want %q; obeyed %v", got, own, obeyed)
	}
	foreign := enforce.NewOrder(time.Now(), "on", time.Now().Add(time.Hour), "")
	if _, _, err := b.shared.ExchangeOrders(t.Context(), map[string]string{t.Name(): own}, map[string]string{t.Name(): foreign}, time.Hour); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b.Look(t.Context())
	}
	if want := []string{b.name + " on"}; !slices.Equal(obeyed, want) || inStore() != foreign {
		t.Errorf("obeyed %v, want %v", obeyed, want)
	}
}
