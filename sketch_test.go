package slidingwindow

import (
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"strings"
	"testing"
)

// The estimate is within four standard errors of a HyperLogLog with 1,024 registers.
func TestDistinct(t *testing.T) {
	var d distinct
	for _, n := range []int{0, 1, 10, 100, 1000, 10_000, 1_000_000} {
		for range 2 { // the same key twice is one
			for i := range n {
				d.add(maphash.String(keySeed, fmt.Sprint(n, i)))
			}
		}
		got := float64(d.take())
		if math.Abs(got-float64(n)) > 4*1.04/math.Sqrt(registers)*float64(n) {
			t.Errorf("%d keys: the estimate is %v", n, got)
		}
	}
	if got := d.take(); got != 0 {
		t.Errorf("%d keys are left after it began anew", got)
	}
}

// The keys that come most often are found among many that come once, with no more than what they came.
func TestFrequent(t *testing.T) {
	var f frequent
	add := func(key string) { f.add(maphash.String(keySeed, key), key) }
	for i := range 3000 {
		add(fmt.Sprint("once ", i))
		for _, key := range []string{"a", "b", "c"} {
			if i%map[string]int{"a": 1, "b": 2, "c": 4}[key] == 0 {
				add(key)
			}
		}
	}
	var keys []string
	for i, k := range f.take(3) {
		keys = append(keys, k.Key)
		if most := []int64{3000, 1500, 750}[i]; k.Times > most || k.Times < most*2/3 {
			t.Errorf("%s came %d times, want at most %d and not much less", k.Key, k.Times, most)
		}
	}
	if want := []string{"a", "b", "c"}; !reflect.DeepEqual(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	add(strings.Repeat("é", 100) + "tail")
	if got := f.take(3); len(got) != 1 || got[0].Key != strings.Repeat("é", 32) {
		t.Errorf("got %v, want one key that is cut", got)
	}
	add(strings.Repeat("a", 63) + "é")
	if got := f.take(3); len(got) != 1 || got[0].Key != strings.Repeat("a", 63) {
		t.Errorf("got %v, want no half of a character", got)
	}
}
