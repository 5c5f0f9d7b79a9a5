package overridebook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// Every Caddy has a replica of the overrides, and so has the store. They differ while changes are under way, and after
// the store has lost what it had: it was emptied, or has come back with an older snapshot. A Caddy that finds a
// difference merges both replicas, and writes what the store lacks, unless the store has changed since it was read.
//
// Each record has a stamp: the version that wrote it. Of two records with the same ID the later stamp counts. A
// record that is deleted leaves its ID with the stamp of the deletion, a tombstone; one that has ended leaves its own
// stamp. So a replica that lacks a record without a tombstone has never had it, and merge adds it.
//
// Tombstones are bounded. A replica drops its oldest ones, and raises its floor to their stamps: it lacks a record up
// to its floor because that is deleted. Replacing all records raises the floor to the new version, and needs no
// tombstones.
//
// A version is a number and a random part, as in 1795602776084-1x7k2p. The number is at least the store's time in
// Unix ms, and above that of the version before. So a change counts as later than all that were acknowledged before
// it, even if its Caddy did not know them.
//
// Builds before stamps write neither these nor the field f. A hash that such a build has written last is taken at its
// word: its version is its floor, and the stamp of its records without one.

// Fields of the hash besides records by ID. The field "f" has the floor, a space and the version that it was written
// with. A tombstone is "-" and the ID, and has the stamp. Builds before stamps skip both, as they are not records.
const (
	floorField = "f"
	tombstone  = "-"
)

// stored is a record as it is in the hash.
type stored struct {
	overrides.Record
	Stamp string `json:"v,omitempty"`
}

// number returns the number of a version; 0 without one.
func number(version string) uint64 {
	text, _, _ := strings.Cut(version, "-")
	n, _ := strconv.ParseUint(text, 10, 63)
	return n
}

// compare orders versions.
func compare(a, b string) int {
	if c := cmp.Compare(number(a), number(b)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func later(a, b string) string {
	if compare(a, b) < 0 {
		return b
	}
	return a
}

// nextVersion returns a version after another one that no other Caddy chooses. The time is that of the store; zero
// for a store that is not shared.
func nextVersion(version string, now time.Time) string {
	n := number(version) + 1
	if !now.IsZero() {
		n = max(n, uint64(max(now.UnixMilli(), 0))) //nolint:gosec // not negative
	}
	return strconv.FormatUint(n, 10) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 36) //nolint:gosec // tells apart, keeps no secret
}

// byID returns records by their IDs.
func byID(records []overrides.Record) map[string]*overrides.Record {
	all := make(map[string]*overrides.Record, len(records))
	for i := range records {
		all[records[i].ID] = &records[i]
	}
	return all
}

// withStamps returns what a build before stamps has written, as it is taken.
func withStamps(c Copy) Copy {
	if c.Version == "" || c.Stamps != nil || c.Floor != "" {
		return c
	}
	c.Floor, c.Stamps = c.Version, make(map[string]string, len(c.Records))
	for i := range c.Records {
		c.Stamps[c.Records[i].ID] = c.Version
	}
	return c
}

// fieldsOf returns a replica as the store keeps it, but for its version.
func fieldsOf(c *Copy) map[string]string {
	if c.Version == "" {
		return nil
	}
	fields := map[string]string{floorField: c.Floor + " " + c.Version}
	records := byID(c.Records)
	for id, stamp := range c.Stamps {
		if r := records[id]; r != nil {
			text, _ := json.Marshal(stored{*r, stamp}) // checked when it was set
			fields[id] = string(text)
		} else {
			fields[tombstone+id] = stamp
		}
	}
	return fields
}

// parse returns the replica of a store. Fields that this build cannot read are left out: they are of another build, or of
// somebody else.
func parse(version string, fields map[string]string) (c Copy, err error) {
	c = Copy{Version: version, Stamps: make(map[string]string, len(fields))}
	floor, of, _ := strings.Cut(fields[floorField], " ")
	if of != version { // a build before stamps has written since
		floor = version
	}
	c.Floor = floor
	for name, text := range fields {
		if id, ok := strings.CutPrefix(name, tombstone); ok {
			if _, isRecord := fields[id]; !isRecord && number(text) > 0 {
				c.Stamps[id] = text
			}
			continue
		}
		var r stored
		if json.Unmarshal([]byte(text), &r) != nil || r.ID != name {
			continue
		}
		if r.Stamp == "" {
			r.Stamp = version
		}
		c.Records, c.Stamps[name] = append(c.Records, r.Record), r.Stamp
	}
	if len(c.Records) > overrides.MaxRecords {
		return c, fmt.Errorf("more than %d records", overrides.MaxRecords)
	}
	bound(&c)
	return c, nil
}

// merge returns what two replicas know together. Where both have a stamp, the record is theirs.
func merge(own, theirs *Copy) (m Copy, dropped int) {
	m.Floor = later(own.Floor, theirs.Floor)
	m.Stamps = make(map[string]string, max(len(own.Stamps), len(theirs.Stamps)))
	ownRecords, theirRecords := byID(own.Records), byID(theirs.Records)
	take := func(id, stamp string, r *overrides.Record) {
		m.Stamps[id] = stamp
		if r != nil {
			m.Records = append(m.Records, *r)
		}
	}
	for id, stamp := range own.Stamps {
		other, both := theirs.Stamps[id]
		c := compare(stamp, other)
		switch {
		case !both && compare(stamp, theirs.Floor) <= 0, both && c < 0:
		case both && c == 0 && ownRecords[id] != nil: // perhaps ended there
			take(id, stamp, theirRecords[id])
		default:
			take(id, stamp, ownRecords[id])
		}
	}
	for id, stamp := range theirs.Stamps {
		other, both := own.Stamps[id]
		if both && compare(stamp, other) > 0 || !both && compare(stamp, own.Floor) > 0 {
			take(id, stamp, theirRecords[id])
		}
	}
	return m, bound(&m)
}

// bound drops records and tombstones beyond what a replica may hold, and raises its floor for those that go, the
// oldest ones. It returns how many records have gone.
func bound(c *Copy) (dropped int) {
	records := byID(c.Records)
	byAge := func(x, y string) int { return cmp.Or(compare(c.Stamps[x], c.Stamps[y]), cmp.Compare(x, y)) }
	drop := func(ids []string) {
		for _, id := range ids {
			c.Floor = later(c.Floor, c.Stamps[id])
			delete(c.Stamps, id)
		}
	}
	if dropped = len(c.Records) - overrides.MaxRecords; dropped > 0 {
		ids := slices.SortedFunc(maps.Keys(records), byAge)[:dropped]
		drop(ids)
		c.Records = slices.DeleteFunc(c.Records, func(r overrides.Record) bool { return c.Stamps[r.ID] == "" })
	}
	var gone []string
	for id, stamp := range c.Stamps {
		if records[id] != nil {
			continue
		}
		if compare(stamp, c.Floor) <= 0 {
			delete(c.Stamps, id)
		} else {
			gone = append(gone, id)
		}
	}
	if over := len(gone) - overrides.MaxRecords; over > 0 {
		slices.SortFunc(gone, byAge)
		drop(gone[:over])
	}
	return max(dropped, 0)
}

// isSame reports whether two replicas hold the same, whatever their versions.
func isSame(a, b *Copy) bool {
	if a.Floor != b.Floor || len(a.Records) != len(b.Records) || !maps.Equal(a.Stamps, b.Stamps) {
		return false
	}
	records := byID(b.Records)
	return !slices.ContainsFunc(a.Records, func(r overrides.Record) bool { return records[r.ID] == nil })
}

// stamp gives next, which a Caddy has made of before, its stamps. If isAll is set, next takes the place of all records, also
// of those that only other Caddys know.
func stamp(before, next *Copy, isAll bool) {
	next.Floor, next.Stamps = before.Floor, make(map[string]string, len(before.Stamps)+1)
	if isAll {
		next.Floor = next.Version
	} else {
		maps.Copy(next.Stamps, before.Stamps)
	}
	old, records := byID(before.Records), byID(next.Records)
	for id, r := range old {
		if records[id] == nil && !isAll && !r.Expired(next.Read) {
			next.Stamps[id] = next.Version
		}
	}
	for id, r := range records {
		if o := old[id]; o == nil || isAll || textOf(o) != textOf(r) {
			next.Stamps[id] = next.Version
		}
	}
	bound(next)
}

// textOf returns what tells apart two records with the same ID.
func textOf(r *overrides.Record) string {
	text, _ := json.Marshal(r) // checked when it was set
	return string(text)
}
