package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

var charge = windowtest.Charge

// newStore returns a store of at most maxKeys keys that is not swept, and the
// time in it.
func newStore(t *testing.T, maxKeys int64) (*Store, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(1_800_000_000_000)
	s := New(Options{MaxKeys: maxKeys, SweepInterval: -1, Now: now.Load})
	t.Cleanup(func() { _ = s.Close() })
	return s, now
}

func take(t *testing.T, s *Store, charges ...window.Charge) []window.Decision {
	t.Helper()
	ds, err := s.Take(context.Background(), charges)
	if err != nil {
		t.Fatalf("Take(%v): %v", charges, err)
	}
	return ds
}

// slotsOf returns copies of the slots in use.
func slotsOf(s *shard) []slot {
	var all []slot
	for _, chunk := range s.chunks {
		all = append(all, chunk...)
	}
	return all
}

// TestFlood lets random keys come in while others are denied: the cap holds, and
// no client gets rid of a denial.
func TestFlood(t *testing.T) {
	const maxKeys = 1000
	s, now := newStore(t, maxKeys)
	denied := make([]window.Charge, 50)
	for i := range denied {
		denied[i] = charge("victims", strconv.Itoa(i), 3, time.Hour)
		switch i % 3 {
		case 0: // spent up
			denied[i].Cost = 3
			take(t, s, denied[i])
		case 1: // little spent, but less left than the cost
			denied[i] = charge("victims", strconv.Itoa(i), 100, time.Hour)
			denied[i].Cost = 10
			take(t, s, denied[i])
			denied[i].Cost = 95
			take(t, s, denied[i])
		case 2: // overdrawn after the fact
			if err := s.ChargeMore(t.Context(), denied[i], 5); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 50_000 {
		now.Add(1)
		take(t, s, charge("flood", strconv.Itoa(i), 2, 30*time.Minute))
		if n := s.Keys(); n > maxKeys+shardCount {
			t.Fatalf("%d keys after %d, want %d at most", n, i, maxKeys+shardCount)
		}
	}
	for i, c := range denied {
		if d := take(t, s, c)[0]; d.Allowed {
			t.Errorf("key %d passes after a flood of keys: %+v", i, d)
		}
	}
	if n := s.Keys(); n < maxKeys*9/10 {
		t.Errorf("%d keys, want close to %d: room is there to be used", n, maxKeys)
	}
}

// TestHeldForItsCost has a key that has something left again, but not enough.
func TestHeldForItsCost(t *testing.T) {
	s, now := newStore(t, 100)
	c := charge("zone", "key", 3, time.Hour)
	take(t, s, c)
	now.Add(30 * time.Minute.Milliseconds())
	c.Cost = 2
	take(t, s, c)
	c.Cost = 3
	if d := take(t, s, c)[0]; d.RetryAfter != time.Hour || d.EffectiveWindow != 30*time.Minute {
		t.Fatalf("Take = %+v, want 1h to retry, and 30m until something is left", d)
	}
	for i := range 1000 { // no other key can go
		take(t, s, charge("full", strconv.Itoa(i), 1, 3*time.Hour))
	}
	now.Add(40 * time.Minute.Milliseconds())
	for i := range 1000 {
		take(t, s, charge("flood", strconv.Itoa(i), 100, time.Hour))
	}
	if d := take(t, s, c)[0]; d.Allowed || d.Remaining != 1 {
		t.Errorf("after the flood: Take = %+v, want a denial with 1 remaining", d)
	}
}

// TestFloodOfDenied fills the store with keys that deny: new keys then share what
// is left, and none passes uncounted.
func TestFloodOfDenied(t *testing.T) {
	const maxKeys, limit = 100, 5
	s, now := newStore(t, maxKeys)
	passed := 0
	for i := range 10_000 {
		c := charge("zone", strconv.Itoa(i), limit, time.Hour)
		c.Cost = limit
		if window.Allowed(take(t, s, c)) {
			passed++
		}
	}
	if most := maxKeys + 2*shardCount; passed > most {
		t.Errorf("%d keys passed, want %d at most", passed, most)
	}
	if n := s.Keys(); n > maxKeys+shardCount {
		t.Errorf("%d keys, want %d at most", n, maxKeys+shardCount)
	}
	newcomer := charge("zone", "newcomer", limit, time.Hour)
	if err := s.Reset(t.Context(), newcomer); err != nil {
		t.Fatal(err)
	}
	if d := take(t, s, newcomer)[0]; d.Allowed {
		t.Errorf("a newcomer resets what all share: %+v", d)
	}
	now.Add(time.Hour.Milliseconds())
	if d := take(t, s, newcomer)[0]; !d.Allowed || d.Remaining != limit-1 {
		t.Errorf("a window later: Take = %+v, want %d remaining", d, limit-1)
	}
	s.sweep()
	if n := s.Keys(); n != 1 {
		t.Errorf("%d keys after the sweep, want 1", n)
	}
}

// TestRequestDoesNotEvictItself takes many keys at once in a full store: none of
// them makes room for another, and every unit is counted.
func TestRequestDoesNotEvictItself(t *testing.T) {
	s, now := newStore(t, shardCount)
	for i := range 1000 {
		take(t, s, charge("old", strconv.Itoa(i), 100, time.Minute))
	}
	for i := range 200 {
		now.Add(1)
		charges := make([]window.Charge, 100)
		for j := range charges {
			charges[j] = charge(fmt.Sprintf("zone %d", j), strconv.Itoa(i), 100, time.Minute)
		}
		if ds := take(t, s, charges...); !window.Allowed(ds) {
			t.Fatalf("request %d is denied: %+v", i, ds)
		}
		units := 0
		for k := range s.shards {
			for at, sl := range slotsOf(&s.shards[k]) {
				if sl.busy {
					t.Fatalf("request %d left a slot busy", i)
				}
				if sl.overflow {
					continue
				}
				ds := make([]window.Decision, 1)
				c := charge("", "", 100, time.Minute)
				s.shards[k].history(int32(at)).Look(now.Load(), &c, ds)
				if ds[0].Remaining == 99 && sl.expires == now.Load()+time.Minute.Milliseconds() {
					units++
				}
			}
		}
		if units < len(charges) {
			t.Fatalf("request %d: %d of %d units are kept", i, units, len(charges))
		}
	}
}

// TestOverflowWithinRequest takes keys of one zone at once that find no room.
func TestOverflowWithinRequest(t *testing.T) {
	s, _ := newStore(t, 1)
	for i := range 1000 { // every shard has a key, and none can go
		take(t, s, charge("full", strconv.Itoa(i), 1, time.Hour))
	}
	charges := make([]window.Charge, 4*shardCount)
	for i := range charges {
		charges[i] = charge("zone", strconv.Itoa(i), 1000, time.Hour)
	}
	take(t, s, charges...)
	var units int64
	seen := map[string]bool{}
	for k := range s.shards {
		for i, sl := range slotsOf(&s.shards[k]) {
			if !sl.overflow {
				continue
			}
			zone := s.shards[k].zones.list[sl.zone].name.zone
			if seen[fmt.Sprint(k, zone)] {
				t.Errorf("the overflow key of zone %s is kept twice", zone)
			}
			seen[fmt.Sprint(k, zone)] = true
			ds := make([]window.Decision, 1)
			s.shards[k].history(int32(i)).Look(s.now(), &charges[0], ds)
			if used := 1000 - ds[0].Remaining; zone == "zone" {
				units += used
			}
		}
	}
	if units != int64(len(charges)) {
		t.Errorf("%d of %d units are counted", units, len(charges))
	}
}

func TestLoweredCap(t *testing.T) {
	s, _ := newStore(t, 5000)
	for i := range 5000 {
		take(t, s, charge("zone", strconv.Itoa(i), 10, time.Hour))
	}
	s.SetMaxKeys(1000)
	for i := range 10_000 {
		take(t, s, charge("zone", "new"+strconv.Itoa(i), 10, time.Hour))
	}
	if n := s.Keys(); n > 1000+shardCount {
		t.Errorf("%d keys, want %d at most", n, 1000+shardCount)
	}
}

func TestSweep(t *testing.T) {
	s, now := newStore(t, 100_000)
	const n = 50_000
	for i := range n {
		take(t, s, charge("zone", strconv.Itoa(i), 10, time.Minute))
	}
	stays := charge("zone", "stays", 1, 2*time.Minute)
	take(t, s, stays)
	s.sweep()
	if got := s.Keys(); got != n+1 {
		t.Errorf("%d keys, want %d", got, n+1)
	}
	now.Add(time.Minute.Milliseconds() - 1)
	s.sweep()
	if got := s.Keys(); got != n+1 {
		t.Errorf("%d keys 1ms before they expire, want %d", got, n+1)
	}
	now.Add(1)
	s.sweep()
	if got := s.Keys(); got != 1 {
		t.Errorf("%d keys after they expired, want 1", got)
	}
	room := 0
	for i := range s.shards {
		for _, chunk := range s.shards[i].chunks {
			room += cap(chunk)
		}
	}
	if room > n/10 {
		t.Errorf("room for %d keys is kept, want it given back", room)
	}
	if d := take(t, s, stays)[0]; d.Allowed {
		t.Errorf("a key that had not expired passes: %+v", d)
	}
	now.Add(2 * time.Minute.Milliseconds())
	s.sweep()
	if got := s.Keys(); got != 0 {
		t.Errorf("%d keys in the end, want 0", got)
	}
}

// TestSweepBurst keeps a bucket that takes longer than its window to run empty.
func TestSweepBurst(t *testing.T) {
	s, now := newStore(t, 100)
	c := charge("zone", "key", 10, 10*time.Second)
	c.Algorithm, c.Cost = window.GCRA{Burst: 20}, 20
	take(t, s, c)
	now.Add(19_999)
	s.sweep()
	if d := take(t, s, c)[0]; d.Allowed || d.RetryAfter != time.Millisecond {
		t.Errorf("1ms before the bucket is empty: Take = %+v, want a denial", d)
	}
	now.Add(1)
	s.sweep()
	if got := s.Keys(); got != 0 {
		t.Errorf("%d keys when the bucket is empty, want 0", got)
	}
}

// TestSweeper sweeps by itself, and ends with Close, which may come twice.
func TestSweeper(t *testing.T) {
	s := New(Options{SweepInterval: time.Millisecond})
	for i := range 100 {
		take(t, s, charge("zone", strconv.Itoa(i), 10, 20*time.Millisecond))
	}
	for start := time.Now(); s.Keys() > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d keys are left", s.Keys())
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRace does everything at once, for the race detector.
func TestRace(t *testing.T) {
	s := New(Options{SweepInterval: time.Millisecond, MaxKeys: 200})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for range 2_000 {
				a := charge("a", strconv.Itoa(r.IntN(500)), 3, 5*time.Millisecond)
				b := charge("b", strconv.Itoa(r.IntN(500)), 3, 5*time.Millisecond)
				b.Algorithm = window.Slices{}
				charges := []window.Charge{a, b}
				if r.IntN(2) == 0 {
					charges = []window.Charge{b, a}
				}
				switch r.IntN(8) {
				case 0:
					_, _ = s.Peek(t.Context(), charges)
				case 1:
					_ = engine.Settle(t.Context(), s, a, s.now(), r.Int64N(5)-2)
				case 2:
					_ = s.Reset(t.Context(), b)
				case 3:
					s.SetMaxKeys(100 + r.Int64N(200))
				default:
					take(t, s, charges...)
				}
			}
		})
	}
	group.Wait()
	_ = s.Close()
	for i := range s.shards {
		for _, sl := range slotsOf(&s.shards[i]) {
			if sl.busy {
				t.Fatal("a slot is busy without a request")
			}
		}
	}
}

// TestHeld holds how long a key cannot be evicted: for as long as the longest denial,
// and not for a cost that never passes.
func TestHeld(t *testing.T) {
	s, now := newStore(t, 1000)
	heldUntil := func() int64 {
		for i := range s.shards {
			for _, sl := range slotsOf(&s.shards[i]) {
				return sl.heldUntil
			}
		}
		t.Fatal("there is no key")
		return 0
	}
	c := charge("zone", "key", 10, time.Hour)
	take(t, s, c)
	c.Cost = 11
	take(t, s, c)
	if got := heldUntil(); got != 0 {
		t.Errorf("after a cost that never passes, held until %d", got)
	}
	c.Cost = 9
	take(t, s, c)
	c.Cost = 1
	take(t, s, c)
	want := now.Load() + time.Hour.Milliseconds()
	if got := heldUntil(); got != want {
		t.Errorf("held until %d, want %d", got, want)
	}
	c.Policies = []window.Policy{{Limit: 10, Window: time.Minute}}
	take(t, s, c)
	if got := heldUntil(); got != want {
		t.Errorf("after a shorter denial, held until %d, want %d", got, want)
	}
}
