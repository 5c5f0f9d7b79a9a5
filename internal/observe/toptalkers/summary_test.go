package toptalkers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// check wants the parts of a summary to agree with each other.
func (s *summary) check(t *testing.T) {
	t.Helper()
	counted, indexed := int64(0), 0
	for i := range s.used {
		own := s.heap[i]
		e := &s.entries[own.place]
		counted += own.count
		if int(e.at) != i || i > 0 && own.count < s.heap[(i-1)/2].count || own.count-e.error < 1 || e.error > s.floor() {
			t.Fatalf("the entry at %d of %d is out of order: %+v", i, s.used, e)
		}
		if place, ok := s.find(e.hash); !ok || place != own.place {
			t.Fatalf("the index has not the entry at %d of %d", i, s.used)
		}
	}
	for _, place := range s.index {
		if place != 0 {
			indexed++
		}
	}
	if counted != s.total || indexed != s.used || s.floor() > s.total/Entries {
		t.Fatalf("%d of %d units are counted, %d of %d entries indexed, and the floor is %d", counted, s.total, indexed, s.used, s.floor())
	}
}

// FuzzKeys compares with a map that has everything.
func FuzzKeys(f *testing.F) {
	f.Add(uint64(1), uint16(3000), uint16(400), uint8(1), []byte{1, 2, 3})
	f.Add(uint64(2), uint16(9000), uint16(9999), uint8(200), []byte{0, 1, 1, 0, 9})
	f.Add(uint64(3), uint16(255), uint16(10), uint8(7), []byte{})
	f.Fuzz(func(t *testing.T, seed uint64, updates, keys uint16, most uint8, skips []byte) {
		random := rand.New(rand.NewPCG(seed, 0))
		now := time.Hour
		k := New(now)
		var halves [2]map[string]int64 // the current one first
		halves[0], halves[1] = map[string]int64{}, map[string]int64{}
		began := now
		for i := range int(updates) {
			if len(skips) > 0 && i%97 == 0 { // time goes on by up to 4 halves
				now += time.Duration(skips[i%len(skips)]) * time.Second
				for ; now-began >= Half; began += Half {
					halves = [2]map[string]int64{{}, halves[0]}
				}
			}
			key := fmt.Sprint(int(keys) - int(float64(keys)*random.Float64()*random.Float64()))
			units := 1 + random.Int64N(int64(most)+1)
			halves[0][key] += units
			k.Add(now, key, units, nil)
			if i%511 == 0 || i == int(updates)-1 {
				compare(t, k, now, halves)
			}
		}
	})
}

func compare(t *testing.T, k *Keys, now time.Duration, halves [2]map[string]int64) {
	t.Helper()
	top, total, exact := k.Top(now, 2*Entries), int64(0), map[string]int64{}
	for _, h := range halves {
		for key, units := range h {
			exact[key] += units
			total += units
		}
	}
	if top.Total != total || top.Since > now || top.Since < now-2*Half {
		t.Fatalf("%d units since %s, want %d; it is %s", top.Total, top.Since, total, now)
	}
	found := map[string]bool{}
	for i, key := range top.Keys {
		found[key.Key] = true
		if n := exact[key.Key]; n > key.Count || n < key.Certain() || key.Error > total/Entries || key.Error < 0 {
			t.Fatalf("%+v has %d of %d units", key, n, total)
		}
		if i > 0 && key.Certain() > top.Keys[i-1].Certain() {
			t.Fatalf("%+v comes after %+v", key, top.Keys[i-1])
		}
	}
	for key, n := range exact {
		if n > total/Entries && !found[key] {
			t.Fatalf("%s has %d of %d units and is not found", key, n, total)
		}
	}
	if ratio := top.TopTenRatio(); ratio < 0 || ratio > 1 {
		t.Fatalf("the ratio is %v", ratio)
	}
	for _, s := range []*summary{k.current, k.previous} {
		if s != nil {
			s.check(t)
		}
	}
}

// The ten highest of 1,000,000 keys with the frequencies of Zipf's law, s = 1, are found, whatever
// the order, in two halves.
func TestZipf(t *testing.T) {
	const keys, updates = 1_000_000, 500_000
	weights, sum := make([]float64, keys), 0.0
	for i := range weights {
		sum += 1 / float64(i+1)
		weights[i] = sum
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("198.51.100.%d", i)
	}
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		k, exact := New(0), make([]int64, keys)
		for i := range updates {
			rank, _ := slices.BinarySearch(weights, random.Float64()*sum)
			exact[rank]++
			k.Add(time.Duration(i)*(2*Half-1)/updates, names[rank], 1, nil)
		}
		top := k.Top(2*Half-1, 10)
		if top.Total != updates || top.Since != 0 {
			t.Errorf("%d units since %s", top.Total, top.Since)
		}
		highest := make([]int, 1000) // no other key comes near the ten
		for i := range highest {
			highest[i] = i
		}
		slices.SortFunc(highest, func(a, b int) int { return int(exact[b] - exact[a]) })
		worst := int64(0)
		for _, rank := range highest[:10] {
			i := slices.IndexFunc(top.Keys, func(key Key) bool { return key.Key == names[rank] })
			if i < 0 {
				t.Fatalf("seed %d: key %d with %d of %d units is not among %+v", seed, rank, exact[rank], updates, top.Keys)
			}
			if key := top.Keys[i]; exact[rank] > key.Count || exact[rank] < key.Certain() {
				t.Errorf("seed %d: %+v has %d units", seed, key, exact[rank])
			} else {
				worst = max(worst, key.Error)
			}
		}
		t.Logf("seed %d: the highest error among the ten is %d of %d units; the bound is %d", seed, worst, updates, updates/Entries)
	}
}

// A zone has two Keys, which may have 160 KiB together.
func TestMemory(t *testing.T) {
	if size := 2 * (2*unsafe.Sizeof(summary{}) + unsafe.Sizeof(Keys{})); size > 160<<10 {
		t.Errorf("a zone takes %d bytes", size)
	}
	const zones = 20
	var before, after runtime.MemStats
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("%0100d", i)
	}
	all := make([]*Keys, 2*zones)
	runtime.GC()
	runtime.GC() // what earlier tests have left is gone
	runtime.ReadMemStats(&before)
	for i := range all {
		all[i] = New(0)
		for j, name := range names {
			all[i].Add(time.Duration(j)*2*Half/time.Duration(len(names)), name, 1, nil)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / zones
	runtime.KeepAlive(all)
	runtime.KeepAlive(names)
	t.Logf("a zone takes %d bytes", each)
	if each > 160<<10 {
		t.Errorf("a zone takes %d bytes", each)
	}
}
