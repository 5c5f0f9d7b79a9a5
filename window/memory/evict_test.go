package memory

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestZonesKeepTheirShare floods a full store with keys of one zone. The counters of
// another zone, which has less than its even share, stay as they were: also when the
// keys of the flood deny, and thus cannot go.
func TestZonesKeepTheirShare(t *testing.T) {
	const maxKeys, counters = 2000, 200
	for _, limit := range []int64{1, 2, 3, 100} {
		for _, used := range []int64{99, 50, 1} {
			t.Run(fmt.Sprintf("limit %d, %d of 100 used", limit, used), func(t *testing.T) {
				s, _ := newStore(t, maxKeys)
				for i := range counters {
					c := charge("quota", strconv.Itoa(i), 100, time.Hour)
					c.Cost = used
					take(t, s, c)
				}
				for i := range 18_000 {
					take(t, s, charge("flood", strconv.Itoa(i), limit, time.Hour))
				}
				if n := s.Keys(); n > maxKeys+shardCount {
					t.Errorf("%d keys, want %d at most", n, maxKeys+shardCount)
				}
				for i := range counters {
					if got := take(t, s, charge("quota", strconv.Itoa(i), 100, time.Hour))[0].Remaining; got != 99-used {
						t.Fatalf("counter %d: %d remain, want %d", i, got, 99-used)
					}
				}
			})
		}
	}
}

// TestZoneTakesItsShare lets a zone come late into a store that another one has filled:
// it gets the room that is its own, and no key of it is counted with others.
func TestZoneTakesItsShare(t *testing.T) {
	const maxKeys = 64 * 600 // so that shards are larger than what a search looks at
	s, _ := newStore(t, maxKeys)
	for i := range maxKeys {
		take(t, s, charge("first", strconv.Itoa(i), 100, time.Hour))
	}
	for i := range 2 * maxKeys {
		take(t, s, charge("late", strconv.Itoa(i), 2, time.Hour))
	}
	slots := countSlots(s)
	if n := slots["late"]; n < maxKeys*45/100 || n > maxKeys*55/100 {
		t.Errorf("the late zone has %d of %d slots, want half", n, maxKeys)
	}
	if n := slots["overflow"]; n > 0 {
		t.Errorf("%d overflow keys, want none: keys that deny no request can go", n)
	}
}

// TestManyZones has zones that hold as much each: newcomers find a key of their own
// zone, also where that is one of many.
func TestManyZones(t *testing.T) {
	const maxKeys, zones = 64 * 600, 25
	s, _ := newStore(t, maxKeys)
	for z := range zones { // one after the other, so that their slots lie together
		for i := range maxKeys / zones {
			take(t, s, charge(fmt.Sprint("zone ", z), strconv.Itoa(i), 100, time.Hour))
		}
	}
	for i := range maxKeys {
		take(t, s, charge(fmt.Sprint("zone ", i%zones), fmt.Sprint("new ", i), 100, time.Hour))
	}
	slots := countSlots(s)
	if n := slots["overflow"]; n > 0 {
		t.Errorf("%d overflow keys, want none", n)
	}
	for z := range zones {
		if n := slots[fmt.Sprint("zone ", z)]; n < maxKeys/zones*8/10 {
			t.Errorf("zone %d has %d slots, want close to %d", z, n, maxKeys/zones)
		}
	}
}

// countSlots counts the slots of each zone, and overflow keys by themselves.
func countSlots(s *Store) map[string]int {
	slots := make(map[string]int)
	for k := range s.shards {
		for _, sl := range slotsOf(&s.shards[k]) {
			if sl.overflow {
				slots["overflow"]++
			} else {
				slots[s.shards[k].zones.list[sl.zone].name.zone]++
			}
		}
	}
	return slots
}

// TestSearchGoesOn lets the search for a key to evict fail: the next one looks elsewhere.
func TestSearchGoesOn(t *testing.T) {
	const maxKeys = 64 * 2000
	s, _ := newStore(t, maxKeys)
	for i := range maxKeys {
		limit := int64(1)
		if i%500 == 0 { // few that can go
			limit = 100
		}
		take(t, s, charge("zone", strconv.Itoa(i), limit, time.Hour))
	}
	for i := range 20_000 {
		take(t, s, charge("zone", fmt.Sprint("new ", i), 1, time.Hour))
	}
	left := 0
	for k := range s.shards {
		for _, sl := range slotsOf(&s.shards[k]) {
			if !sl.overflow && sl.heldUntil == 0 {
				left++
			}
		}
	}
	if left > 0 {
		t.Errorf("%d of %d keys that could go are never found", left, maxKeys/500)
	}
}

// TestGiveBackLetsGo gives back what clients have spent, as after a right log-in. A full
// store of such keys has room for newcomers.
func TestGiveBackLetsGo(t *testing.T) {
	const maxKeys = 2000
	for _, limit := range []int64{1, 2} {
		for _, algorithm := range []window.Algorithm{window.Zset{}, window.Log{}, window.Slices{}, window.Layers{Coarse: time.Minute, Fine: time.Second}, window.GCRA{}, window.Stream{}} {
			t.Run(fmt.Sprintf("%s %d", algorithm.Name(), limit), func(t *testing.T) {
				s, _ := newStore(t, maxKeys)
				login := func(key string, cost int64) window.Charge {
					c := charge("login", key, limit, 15*time.Minute)
					c.Algorithm, c.Cost = algorithm, cost
					return c
				}
				for i := range 20_000 {
					c := login(strconv.Itoa(i), limit)
					if d := take(t, s, c)[0]; !d.Allowed {
						t.Fatalf("client %d is denied: %+v", i, d)
					}
					if err := s.GiveBack(t.Context(), c, s.now(), 1); err != nil {
						t.Fatal(err)
					}
				}
				if n := s.Keys(); limit == 1 && n > 0 {
					t.Errorf("%d empty keys are kept", n)
				}
				denied := 0
				for i := range 1000 {
					if !take(t, s, login(fmt.Sprint("new ", i), 1))[0].Allowed {
						denied++
					}
				}
				if denied > 0 {
					t.Errorf("%d of 1000 new clients are denied", denied)
				}
			})
		}
	}
}

// TestGiveBackHolds gives back a unit of a key that still denies: it cannot go.
func TestGiveBackHolds(t *testing.T) {
	s, now := newStore(t, 100)
	c := charge("zone", "key", 3, time.Hour)
	take(t, s, c)
	if err := s.ChargeMore(t.Context(), c, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.GiveBack(t.Context(), c, now.Load(), 1); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		take(t, s, charge("zone", fmt.Sprint("new ", i), 2, time.Hour))
	}
	if d := take(t, s, c)[0]; d.Allowed {
		t.Errorf("Take = %+v, want a denial", d)
	}
}
