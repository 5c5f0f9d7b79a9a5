package toptalkers

import (
	"slices"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// named is a store that has a name and does nothing.
type named struct {
	window.Store
	name string
}

func (n named) String() string { return n.name }

// hashing is a store that keeps hashes in the place of keys.
type hashing struct{ named }

func (hashing) HashesKeys() bool { return true }

func (hashing) AppendKeyHash(dst []byte, key string) []byte { return append(dst, "hash of "+key...) }

// What is noted is there while somebody holds the zone, and one that hashes keys sees none that were kept before.
func TestPairsOutliveReloads(t *testing.T) {
	store := named{name: t.Name()}
	hold := func() *zonepool.Hold {
		return zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: t.Name()}, Zone: "z"})
	}
	one, two, three, four := hold(), hold(), hold(), hold()
	first := Of(one, store, "")
	first.Denied("a")
	first.Denied("a")
	first.Denied("b")
	first.Charged("c", 7)
	second := Of(two, store, "")
	one.Release()
	want := []control.TopKey{{Key: "a", Count: 2}, {Key: "b", Count: 1}}
	if top := second.Top("denied", 10); top.Zone != "z" || top.Store != t.Name() || top.Total != 3 || top.Hashed || !slices.Equal(top.Keys, want) {
		t.Errorf("denied: got %+v, want %v", top, want)
	}
	if top := second.Top("charged", 10); top.Total != 7 || len(top.Keys) != 1 {
		t.Errorf("charged: got %+v, want 7 units of c", top)
	}
	tier := Of(two, store, "24/48")
	tier.Charged("192.0.2.0/24", 100)
	tier.Charged("198.51.100.0/24", 100)
	if top := tier.Top("charged", 10); top.Tier != "24/48" || top.Total != 200 || second.Top("charged", 10).Total != 7 {
		t.Errorf("a tier: got %+v, want 200 units apart from those of the zone", top)
	}
	if ratio, ok := metricstest.Find(t, metricstest.Of(Collector{}), "caddy_sliding_window_top_ten_ratio", "zone", "z", "by", "charged"); !ok || ratio != 1 {
		t.Errorf("top_ten_ratio: got %v, %v, want 1", ratio, ok)
	}
	hashed := Of(three, hashing{store}, "")
	hashed.Denied("a")
	want = []control.TopKey{{Key: "hash of a", Count: 1}}
	if top := hashed.Top("denied", 10); !top.Hashed || !slices.Equal(top.Keys, want) {
		t.Errorf("with hashes: got %+v, want %v", top, want)
	}
	three.Release()
	two.Release()
	fresh := Of(four, store, "")
	defer four.Release()
	if top := fresh.Top("denied", 10); top.Total != 0 {
		t.Errorf("after the last release: got %+v, want nothing", top)
	}
}

// A zone without the option notes nothing.
func TestNilNotesNothing(t *testing.T) {
	var z *Tracker
	z.Denied("a")
	z.Charged("a", 1)
}
