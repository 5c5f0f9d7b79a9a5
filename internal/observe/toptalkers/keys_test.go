package toptalkers

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestHalves(t *testing.T) {
	const half = Half
	k := New(half / 4)
	add := func(now time.Duration, key string, units int64) { k.Add(now, key, units, nil) }
	want := func(now, since time.Duration, total int64, keys ...Key) {
		t.Helper()
		if got := k.Top(now, 2); got.Since != since || got.Total != total || !reflect.DeepEqual(got.Keys, keys) {
			t.Errorf("at %s: got %+v, want %d since %s, %+v", now, got, total, since, keys)
		}
	}
	want(half/2, half/4, 0)
	add(half/2, "a", 3)
	add(half/2, "b", 5)
	add(half/2, "c", 1)
	add(half/2, "c", 0)
	add(half/2, "c", -9)
	want(half, half/4, 9, Key{Key: "b", Count: 5}, Key{Key: "a", Count: 3})
	add(half*3/2, "a", 4) // the second half began at 5/4
	want(half*2, half/4, 13, Key{Key: "a", Count: 7}, Key{Key: "b", Count: 5})
	want(half*9/4, half*5/4, 4, Key{Key: "a", Count: 4}) // the third one began
	add(half*9/4, "d", 1)
	want(half*17/4, half*13/4, 0) // two later
	add(half*17/4, "e", 1)
	want(half*17/4, half*13/4, 1, Key{Key: "e", Count: 1})
}

func TestLongKeys(t *testing.T) {
	k := New(0)
	long := strings.Repeat("x", 63)
	k.Add(0, long+"y", 9, nil)
	k.Add(0, long+"é1", 8, nil) // cut in the middle of a character
	k.Add(0, long+"é2", 7, nil)
	k.Add(0, long+"\xff\xff", 6, nil)
	k.Add(0, "plain", 5, func(dst []byte, key string) []byte { return append(dst, key+strings.Repeat("-", 100)...) })
	want := []Key{
		{long + "y", 9, 0, false},
		{long, 8, 0, true},
		{long, 7, 0, true},
		{long, 6, 0, true},
		{"plain" + strings.Repeat("-", 59), 5, 0, false},
	}
	if got := k.Top(0, 9).Keys; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestConcurrent(t *testing.T) {
	k := New(0)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 5000 {
				k.Add(time.Duration(j)*Half/5000, strconv.Itoa(j%(300+i)), 1, nil)
				if j%1000 == 0 {
					k.Top(Half-1, 10)
				}
			}
		})
	}
	group.Wait()
	if top := k.Top(Half-1, 10); top.Total != 20_000 || len(top.Keys) != 10 {
		t.Errorf("got %+v", top)
	}
}

// adds are updates: of few keys, which have entries, and of many.
func adds() map[string]func(*Keys, int) {
	few, many := make([]string, 100), make([]string, 4000)
	for i := range many {
		many[i] = "198.51.100." + strconv.Itoa(i)
		few[i%len(few)] = many[i]
	}
	return map[string]func(*Keys, int){
		"few":  func(k *Keys, i int) { k.Add(0, few[i%len(few)], 1, nil) },
		"many": func(k *Keys, i int) { k.Add(0, many[i*7919%len(many)], 1, nil) },
	}
}

func TestNoAllocations(t *testing.T) {
	for name, add := range adds() {
		k, i := New(0), 0
		if n := testing.AllocsPerRun(1000, func() { i++; add(k, i) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	for name, add := range adds() {
		b.Run(name, func(b *testing.B) {
			k, i := New(0), 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				add(k, i)
			}
		})
		b.Run(name+"_parallel", func(b *testing.B) {
			k := New(0)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					add(k, i)
				}
			})
		})
	}
}

func BenchmarkTop(b *testing.B) {
	k, add := New(0), adds()["many"]
	for i := range 100_000 {
		add(k, i)
	}
	for b.Loop() {
		k.Top(0, 10)
	}
}
