package overrides

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The longest window of all records that hold a key counts, whichever of them decides, until one window
// after the record's end.
func TestLookBackIsOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	today := time.Now()
	hits, ended := 0, 0
	for range 300 {
		var records []Record
		for range random.IntN(40) {
			r := randomRecord(random)
			length := time.Duration(1+random.IntN(5)) * time.Hour
			r.Limits = []RecordLimit{{Max: 5, Window: "1m"}, {Max: 10, Window: length.String()}}
			r = complete(t, r)
			if until := today.Add(time.Duration(random.IntN(20)-12)*time.Hour + 30*time.Minute); random.IntN(3) > 0 {
				r.Until = &until
			}
			records = append(records, r)
		}
		s, records := compileOnce(t, records)
		for range 30 {
			key := randomKey(random)
			var want time.Duration
			for _, r := range records {
				till := r.Forgotten()
				r.Until = nil
				if oracle([]Record{r}, key) == "" || till != 0 && today.UnixMilli() >= till {
					continue
				}
				if want = max(want, r.Window()); till != 0 && till < today.Add(r.Window()).UnixMilli() {
					ended++
				}
			}
			if got := s.LookBack(key); got != want {
				t.Fatalf("%q among %+v: looks back %s, want %s", key, records, got, want)
			}
			if want > 0 {
				hits++
			}
		}
	}
	if hits < 1000 || ended < 500 {
		t.Errorf("only %d hits, and %d records that have ended", hits, ended)
	}
}

// Two records of one selector look back as far as both. So does one with a key under each secret.
func TestLookBackOfOneSelector(t *testing.T) {
	hour := complete(t, Record{Key: text("anna"), Limits: []RecordLimit{{Max: 10, Window: "1h"}}})
	day := complete(t, Record{Values: []string{"anna"}, Limits: []RecordLimit{{Max: 10, Window: "1d"}}})
	over := time.Now().Add(-2 * time.Hour)
	hour.Until, day.Created = &over, day.Created.Add(-time.Hour)
	for _, records := range [][]Record{{hour, day}, {day, hour}} {
		s, _ := Compile(records, anyZone)
		if got := s.LookBack("anna"); got != 24*time.Hour {
			t.Errorf("anna looks back %s, want a day", got)
		}
		if got := s.LookBack("otto"); got != 0 {
			t.Errorf("otto looks back %s", got)
		}
	}
	s, _ := Compile([]Record{hour}, anyZone)
	if got := s.LookBack("anna"); got != 0 {
		t.Errorf("two hours after an hour: looks back %s", got)
	}
	z := anyZone
	z.Hasher = hashing(2)
	for n := range 2 {
		hashed := complete(t, Record{Hashes: []string{hexOf("anna", n)}, Limits: []RecordLimit{{Max: 10, Window: "1h"}}})
		s, _ := Compile([]Record{hashed, complete(t, Record{All: true, Limits: []RecordLimit{{Max: 10, Window: "2m"}}})}, z)
		if anna, otto := s.LookBack("anna"), s.LookBack("otto"); anna != time.Hour || otto != 2*time.Minute {
			t.Errorf("secret %d: anna looks back %s, otto %s", n, anna, otto)
		}
	}
	if (*Set)(nil).LookBack("anna") != 0 {
		t.Error("a set without records looks back")
	}
}

func TestLookBackAllocatesNothing(t *testing.T) {
	s, _ := Compile(manyRecords(t), anyZone)
	for name, key := range benchmarkKeys {
		if n := testing.AllocsPerRun(100, func() { s.LookBack(key) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
