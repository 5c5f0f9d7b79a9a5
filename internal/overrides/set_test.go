package overrides

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func text(s string) *string { return &s }

// anyZone takes every record, for keys of one placeholder.
var anyZone = Target{
	Name: "z", Single: true, IPv4Prefix: 32, IPv6Prefix: 128,
	KeyOf: func(values []string) (string, error) { return strings.Join(values, " "), nil },
}

// hashing is a Hasher with that number of secrets.
type hashing int

func (h hashing) HashKey(key string, n int) (sum [32]byte, ok bool) {
	return sha256.Sum256(fmt.Appendf(nil, "%d %s", n, key)), n < int(h)
}

func hexOf(key string, n int) string {
	sum, _ := hashing(n+1).HashKey(key, n)
	return hex.EncodeToString(sum[:])
}

// complete makes a record of zone z complete.
func complete(tb testing.TB, r Record) Record {
	tb.Helper()
	r.Zone = "z"
	if count(r.Limits != nil, r.Factor != 0, r.Deny, r.Exempt) == 0 {
		r.Deny = true
	}
	if err := r.Complete(now); err != nil {
		tb.Fatalf("%+v: %v", r, err)
	}
	return r
}

// The more exact one of any two kinds of selectors that hold a key decides, whatever the order of
// the records; when its record is over, the other one does.
func TestPrecedence(t *testing.T) {
	const key = "192.0.2.1"
	order := []Record{ // from the most exact one
		{Key: text(key)},
		{CIDR: "192.0.2.1/32"},
		{CIDR: "192.0.2.0/24"},
		{CIDR: "0.0.0.0/0"},
		{Pattern: "192.0.2.1*"},
		{Pattern: "192.0.2*"},
		{Pattern: "*2.1"},
		{Pattern: "*1"},
		{All: true},
	}
	for i := range order {
		for j := i + 1; j < len(order); j++ {
			first, second := complete(t, order[i]), complete(t, order[j])
			for _, records := range [][]Record{{first, second}, {second, first}} {
				s, misfits := Compile(records, anyZone)
				if r := s.Find(key); r == nil || r.ID != first.ID || misfits != nil {
					t.Errorf("%+v beside %+v: got %+v, misfits %v", order[i], order[j], r, misfits)
				}
			}
			over := time.Now().Add(-time.Second)
			first.Until = &over
			s, _ := Compile([]Record{first, second}, anyZone)
			if r := s.Find(key); r == nil || r.ID != second.ID {
				t.Errorf("%+v, which is over, beside %+v: got %+v", order[i], order[j], r)
			}
		}
	}
}

// The smaller ID decides between two patterns with literal parts of one length.
func TestPrecedenceOfEqualPatterns(t *testing.T) {
	a, b := complete(t, Record{Pattern: "ab*"}), complete(t, Record{Pattern: "*yz"})
	want := min(a.ID, b.ID)
	for _, records := range [][]Record{{a, b}, {b, a}} {
		s, _ := Compile(records, anyZone)
		if r := s.Find("ab.yz"); r == nil || r.ID != want {
			t.Errorf("got %+v, want %s", r, want)
		}
	}
}

// oracle finds the rule of a key by trying all records.
func oracle(records []Record, key string) (best string) {
	rank := func(r *Record) (level, length int) {
		switch {
		case r.Key != nil && *r.Key == key:
			return 4, 0
		case r.CIDR != "":
			p := netip.MustParsePrefix(r.CIDR)
			if a, ok := normalize.Address(key); ok && p.Contains(a) {
				return 3, p.Bits()
			}
		case r.Pattern != "":
			literal := strings.Trim(r.Pattern, "*")
			if r.Pattern[0] == '*' && strings.HasSuffix(key, literal) || r.Pattern[0] != '*' && strings.HasPrefix(key, literal) {
				return 2, len(literal)
			}
		case r.All:
			return 1, 0
		}
		return 0, 0
	}
	bestLevel, bestLength := 0, 0
	for i := range records {
		r := &records[i]
		level, length := rank(r)
		if r.Expired(time.Now()) || level == 0 {
			continue
		}
		if level > bestLevel || level == bestLevel && (length > bestLength || length == bestLength && r.ID < best) {
			best, bestLevel, bestLength = r.ID, level, length
		}
	}
	return best
}

func randomText(random *rand.Rand, most int) string {
	b := make([]byte, 1+random.IntN(most))
	for i := range b {
		b[i] = "ab.1"[random.IntN(4)]
	}
	return string(b)
}

func randomAddress(random *rand.Rand) netip.Addr {
	if random.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{192, 0, byte(random.IntN(4)), byte(random.IntN(256))})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(random.IntN(4)), 6: byte(random.IntN(3)), 15: byte(random.IntN(256))})
}

func randomRecord(random *rand.Rand) Record {
	switch random.IntN(9) {
	case 0, 1:
		return Record{Key: text(randomText(random, 5))}
	case 2:
		return Record{Key: text(randomAddress(random).String())}
	case 3, 4:
		a := randomAddress(random)
		p, _ := a.Prefix(random.IntN(a.BitLen() + 1))
		return Record{CIDR: p.String()}
	case 5, 6:
		return Record{Pattern: randomText(random, 5) + "*"}
	case 7:
		return Record{Pattern: "*" + randomText(random, 5)}
	}
	return Record{All: true}
}

// compileOnce compiles the first record of each selector, and returns these, too.
func compileOnce(t *testing.T, records []Record) (*Set, []Record) {
	t.Helper()
	seen := make(map[string]bool)
	kept := records[:0]
	for _, r := range records {
		if !seen[r.ID] {
			seen[r.ID] = true
			kept = append(kept, r)
		}
	}
	s, misfits := Compile(kept, anyZone)
	if len(misfits) > 0 {
		t.Fatal(misfits)
	}
	return s, kept
}

// randomKey returns a text, or an address.
func randomKey(random *rand.Rand) string {
	key := randomText(random, 6)
	if random.IntN(2) == 0 {
		key = randomAddress(random).String()
	}
	return key
}

// Random sets decide as trying all records does.
func TestFindIsOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	over, later := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	hits := 0
	for range 400 {
		var records []Record
		for range random.IntN(60) {
			r := complete(t, randomRecord(random))
			switch random.IntN(4) {
			case 0:
				r.Until = &over
			case 1:
				r.Until = &later
			}
			records = append(records, r)
		}
		s, kept := compileOnce(t, records)
		for range 50 {
			key := randomKey(random)
			got := ""
			if r := s.Find(key); r != nil {
				got = r.ID
				hits++
			}
			if want := oracle(kept, key); got != want {
				t.Fatalf("%q among %+v: got %q, want %q", key, kept, got, want)
			}
		}
	}
	if hits < 1000 {
		t.Errorf("only %d hits", hits)
	}
}

// A key that means a group of addresses is in the networks that hold the group.
func TestFindGroups(t *testing.T) {
	z := anyZone
	z.IPv4Prefix, z.IPv6Prefix = 24, 64
	s, _ := Compile([]Record{complete(t, Record{CIDR: "2001:db8::/48"}), complete(t, Record{CIDR: "192.0.0.0/16"})}, z)
	for key, want := range map[string]string{
		"2001:db8:0:7::/64": "2001:db8::/48", "2001:db8:1::/64": "", "192.0.2.0/24": "192.0.0.0/16", "192.1.2.0/24": "", "text/24": "", "": "",
	} {
		got := ""
		if r := s.Find(key); r != nil {
			got = r.CIDR
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", key, got, want)
		}
	}
}

// With hash_keys a record holds HMACs. One that is known under any of the secrets is found.
func TestFindHashed(t *testing.T) {
	z := anyZone
	z.Hasher = hashing(2)
	for n := range 2 {
		s, misfits := Compile([]Record{complete(t, Record{Hashes: []string{hexOf("anna", n)}})}, z)
		if misfits != nil || s.Find("anna") == nil || s.Find("otto") != nil {
			t.Errorf("secret %d: misfits %v, anna %v, otto %v", n, misfits, s.Find("anna"), s.Find("otto"))
		}
	}
}

// What does not fit the zone is left out, with the reason, and the rest holds.
func TestMisfits(t *testing.T) {
	several, hashed, narrow, strict := anyZone, anyZone, anyZone, anyZone
	several.Single = false
	hashed.Hasher = hashing(1)
	narrow.IPv4Prefix = 24
	strict.Fit = func(*Rule) error { return errors.New("limits: no") }
	strict.KeyOf = func([]string) (string, error) { return "", errors.New("key: no") }
	for _, c := range []struct {
		zone   Target
		record Record
		want   string
	}{
		{several, Record{CIDR: "192.0.2.0/24"}, "cidr: the zone's key is more than one placeholder; send values"},
		{several, Record{Pattern: "a*"}, "pattern: the zone's key is more than one placeholder; send values"},
		{hashed, Record{CIDR: "192.0.2.0/24"}, "cidr: with hash_keys no key is kept; send key or values"},
		{hashed, Record{Pattern: "a*"}, "pattern: with hash_keys no key is kept; send key or values"},
		{hashed, Record{Key: text("a")}, "key: the zone's store has hash_keys, and the record holds a key"},
		{hashed, Record{Hashes: []string{"no hex"}}, "hashes: must be HMACs of 64 hex digits each"},
		{anyZone, Record{Hashes: []string{hexOf("a", 0)}}, "hashes: the zone's store has no hash_keys"},
		{narrow, Record{CIDR: "192.0.2.0/25"}, "cidr: is longer than /24, by which the zone groups addresses; send key, or a shorter network"},
		{strict, Record{All: true, Factor: 2}, "limits: no"},
		{strict, Record{Key: text("a")}, "key: no"},
	} {
		all := complete(t, Record{All: true})
		s, misfits := Compile([]Record{complete(t, c.record), all}, c.zone)
		if len(misfits) != 1 || misfits[0].Err.Error() != c.want {
			t.Errorf("%+v: got %v, want %s", c.record, misfits, c.want)
		}
		if r := s.Find("b"); r == nil || !r.All {
			t.Errorf("%+v: the record for all keys is not found beside it", c.record)
		}
		if err := Check(&all, c.zone); err != nil {
			t.Errorf("%+v: got %v, want no error", all, err)
		}
	}
	if s, _ := Compile([]Record{complete(t, Record{All: true})}, Target{Name: "other"}); s != nil || s.Find("k") != nil {
		t.Error("a record of another zone counts")
	}
}

// manyRecords is the largest number of records, of all kinds, with ends.
func manyRecords(tb testing.TB) []Record {
	random := rand.New(rand.NewPCG(3, 4))
	later := time.Now().Add(time.Hour)
	var records []Record
	for i := range MaxRecords {
		var r Record
		switch i % 5 {
		case 0:
			r.Key = text(fmt.Sprintf("customer-%d", i))
		case 1:
			a := netip.AddrFrom4([4]byte{byte(1 + random.IntN(200)), byte(i), byte(i >> 8), 0})
			p, _ := a.Prefix(8 + random.IntN(17))
			r.CIDR = p.String()
		case 2:
			p, _ := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i), byte(i >> 8), 7: byte(i)}).Prefix(32 + random.IntN(33))
			r.CIDR = p.String()
		case 3:
			r.Pattern = fmt.Sprintf("customer-%d*", i)
		case 4:
			r.Pattern = fmt.Sprintf("*.%d.example.com", i)
		}
		r = complete(tb, r)
		r.Until = &later
		records = append(records, r)
	}
	return records
}

var benchmarkKeys = map[string]string{
	"text": "customer-x1200", "v4": "203.0.113.7", "v6": "2001:db8:2:9::/64", "host": "www.77x.example.com", "hit": "customer-500",
}

func TestFindAllocatesNothing(t *testing.T) {
	s, misfits := Compile(manyRecords(t), anyZone)
	if misfits != nil {
		t.Fatal(misfits)
	}
	for name, key := range benchmarkKeys {
		if n := testing.AllocsPerRun(100, func() { s.Find(key) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	s, _ := Compile(manyRecords(b), anyZone)
	for name, key := range benchmarkKeys {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Find(key)
			}
		})
	}
}
