package overrides

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// pairs says which of two records decides on one key, by the kinds of their selectors: that of the row (<), that of the column
// (^), the one that was set last (=), or the one with the smaller ID (#).
const pairs = `
          key values /32 /24 /0 long* *long short* *short all
key        =    =     <   <   <   <     <     <      <     <
values     =    =     <   <   <   <     <     <      <     <
/32        ^    ^     =   <   <   <     <     <      <     <
/24        ^    ^     ^   =   <   <     <     <      <     <
/0         ^    ^     ^   ^   =   <     <     <      <     <
long*      ^    ^     ^   ^   ^   =     #     <      <     <
*long      ^    ^     ^   ^   ^   #     =     <      <     <
short*     ^    ^     ^   ^   ^   ^     ^     =      #     <
*short     ^    ^     ^   ^   ^   ^     ^     #      =     <
all        ^    ^     ^   ^   ^   ^     ^     ^      ^     =
`

// Every pair of kinds, in both orders, with either set first. A record that is over leaves the key to the other
// one, and when both are over the configuration decides.
func TestPrecedenceOfEveryPair(t *testing.T) {
	const key = "192.0.2.1"
	kinds := map[string]Record{
		"key": {Key: text(key)}, "values": {Values: []string{key}},
		"/32": {CIDR: "192.0.2.1/32"}, "/24": {CIDR: "192.0.2.0/24"}, "/0": {CIDR: "0.0.0.0/0"},
		"long*": {Pattern: "192.0*"}, "*long": {Pattern: "*0.2.1"}, "short*": {Pattern: "19*"}, "*short": {Pattern: "*.1"},
		"all": {All: true},
	}
	rows := strings.Split(strings.TrimSpace(pairs), "\n")
	columns := strings.Fields(rows[0])
	if len(columns) != len(kinds) || len(rows) != len(kinds)+1 {
		t.Fatalf("the table has %d rows and %d columns, want %d", len(rows)-1, len(columns), len(kinds))
	}
	decides := func(records ...Record) (id, outcome string) {
		s, misfits := Compile(records, anyZone)
		if misfits != nil {
			t.Fatalf("%+v: %v", records, misfits)
		}
		if r := s.Find(key); r != nil {
			return r.ID, r.Reason
		}
		return "", "configuration"
	}
	over := time.Now().Add(-time.Second)
	for _, row := range rows[1:] {
		cells := strings.Fields(row)
		for i, cell := range cells[1:] {
			name := fmt.Sprintf("%s beside %s", cells[0], columns[i])
			a, b := complete(t, kinds[cells[0]]), complete(t, kinds[columns[i]])
			a.Reason, b.Reason = "row", "column"
			for _, last := range []*Record{&a, &b} {
				a.Created, b.Created = now, now
				last.Created = now.Add(time.Second)
				want := map[string]string{"<": "row", "^": "column", "=": last.Reason}[cell]
				if cell == "#" {
					want = map[bool]string{true: "row", false: "column"}[a.ID < b.ID]
				}
				for _, records := range [][]Record{{a, b}, {b, a}} {
					if _, got := decides(records...); got != want {
						t.Errorf("%s, of which the %s was set last: the %s decides, want the %s", name, last.Reason, got, want)
					}
				}
			}
			if cell == "=" {
				continue // one replaces the other
			}
			a.Created, b.Created = now, now
			for _, c := range []struct {
				aOver, bOver bool
				want         string
			}{{true, false, "column"}, {false, true, "row"}, {true, true, "configuration"}} {
				a, b := a, b
				if c.aOver {
					a.Until = &over
				}
				if c.bOver {
					b.Until = &over
				}
				if _, got := decides(a, b); got != c.want {
					t.Errorf("%s, over: %v and %v: the %s decides, want the %s", name, c.aOver, c.bOver, got, c.want)
				}
			}
		}
	}
}

// A key of several placeholders has values and all, and one with hash_keys has hashes and all: the one
// key decides, and of two for one key the one that was set last, under whichever secret.
func TestPrecedenceInOtherZones(t *testing.T) {
	several, hashed := anyZone, anyZone
	several.Single = false
	hashed.Hasher = hashing(2)
	later := func(r Record) Record {
		r.Created = r.Created.Add(time.Second)
		return r
	}
	all := complete(t, Record{All: true})
	values := complete(t, Record{Values: []string{"acme", "anna"}})
	key := complete(t, Record{Key: text("acme anna")})
	first := complete(t, Record{Hashes: []string{hexOf("acme anna", 0)}})
	both := complete(t, Record{Hashes: []string{hexOf("acme anna", 1), hexOf("acme anna", 0)}})
	for _, c := range []struct {
		name       string
		zone       Target
		one, other Record
		want       string
	}{
		{"values beside all", several, values, later(all), values.ID},
		{"key beside all", several, key, later(all), key.ID},
		{"key after values", several, values, later(key), key.ID},
		{"values after key", several, later(values), key, values.ID},
		{"hashes beside all", hashed, first, later(all), first.ID},
		{"both secrets after one", hashed, first, later(both), both.ID},
		{"one secret after both", hashed, later(first), both, first.ID},
	} {
		for _, records := range [][]Record{{c.one, c.other}, {c.other, c.one}} {
			s, misfits := Compile(records, c.zone)
			if r := s.Find("acme anna"); r == nil || r.ID != c.want || misfits != nil {
				t.Errorf("%s: got %+v, misfits %v, want %s", c.name, r, misfits, c.want)
			}
		}
	}
}
