package toptalkers

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
	"testing"
)

// The keys that come most often are found among many that come once, with no more than what they came.
func TestFrequent(t *testing.T) {
	var f Frequent
	seed := maphash.MakeSeed()
	add := func(key string) { f.Add(maphash.String(seed, key), key) }
	for i := range 3000 {
		add(fmt.Sprint("once ", i))
		for _, key := range []string{"a", "b", "c"} {
			if i%map[string]int{"a": 1, "b": 2, "c": 4}[key] == 0 {
				add(key)
			}
		}
	}
	var keys []string
	for i, k := range f.Take(3) {
		keys = append(keys, k.Key)
		if most := []int64{3000, 1500, 750}[i]; k.Certain() > most || k.Certain() < most*2/3 {
			t.Errorf("%s came %d times, want at most %d and not much less", k.Key, k.Certain(), most)
		}
	}
	if want := []string{"a", "b", "c"}; !reflect.DeepEqual(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	add(strings.Repeat("é", 100) + "tail")
	if got := f.Take(3); len(got) != 1 || got[0].Key != strings.Repeat("é", 32) {
		t.Errorf("got %v, want one key that is cut", got)
	}
	add(strings.Repeat("a", 63) + "é")
	if got := f.Take(3); len(got) != 1 || got[0].Key != strings.Repeat("a", 63) {
		t.Errorf("got %v, want no half of a character", got)
	}
}
