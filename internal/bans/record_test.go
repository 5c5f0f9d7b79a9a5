package bans

import (
	"fmt"
	"testing"
)

// Each ban is longer than the one before, up to the maximum, and its level falls while nothing happens.
func TestLevels(t *testing.T) {
	rule := Rule{Length: 10_000, After: 1, In: 60_000, Factor: 2000, Max: 35_000, Halve: 100_000}
	var r Record
	now := int64(1_800_000_000_000)
	for _, want := range []int64{10_000, 20_000, 35_000, 35_000} {
		if !r.strike(now, 0, &rule) || r.Until-now != want {
			t.Fatalf("%+v at %d, want a ban of %d", r, now, want)
		}
		if r.strike(r.Until-1, 0, &rule) || r.Until-now != want {
			t.Fatal("a strike in a ban counts")
		}
		now = r.Until
	}
	now += 3 * rule.Halve // of two levels, none is left
	if !r.strike(now, 0, &rule) || r.Until-now != 10_000 {
		t.Errorf("%+v, want the first ban again", r)
	}
}

// What a record writes, it reads.
func TestText(t *testing.T) {
	r := Record{1, 2, 3, 4, 5, 6, 7, []int64{8, 9}, `{"by":"a|b"}`}
	got, err := Parse(r.String())
	if err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
		t.Errorf("%+v, %v, want %+v", got, err, r)
	}
	for _, text := range []string{"", "|", "1 2 3 4 5 6|", "1 2 3 4 5 6 x|", "1 2 3 4 5 6 -7|", "1 2 3 4 5 6 7"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q is a record", text)
		}
	}
}
