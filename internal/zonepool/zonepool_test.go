package zonepool

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
)

type counted struct{ destructs *int }

func (c *counted) Destruct() error { *c.destructs++; return nil }

// A part is one for all who hold it, by its zone and its key, and ends with the last of them.
func TestParts(t *testing.T) {
	destructs := 0
	get := func(h *Hold, part any) *counted { return Get(h, part, func() *counted { return &counted{&destructs} }) }
	zone := engine.ZoneID{Store: engine.StoreID{Name: "memory"}, Zone: t.Name()}
	other := engine.ZoneID{Store: engine.StoreID{Name: "memory", Group: 1}, Zone: t.Name()}
	one, two, apart := Of(zone), Of(zone), Of(other)
	first := get(one, "a")
	if get(two, "a") != first || get(two, "b") == first || get(apart, "a") == first {
		t.Error("parts of one zone and key are not one, or others are")
	}
	if held := All[*counted](); len(held[zone]) != 2 || len(held[other]) != 1 {
		t.Errorf("got %v, want two parts and one", held)
	}
	one.Release()
	one.Release() // a handler that failed to load, and its cleanup
	if destructs != 0 {
		t.Error("a part ended that another handler holds")
	}
	two.Release()
	apart.Release()
	(*Hold)(nil).Release()
	if destructs != 3 {
		t.Errorf("%d parts ended, want 3", destructs)
	}
}
