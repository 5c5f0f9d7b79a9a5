package overridebook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// What stores and Caddy's storage hold: the first of each as builds before stamps have written it.
var (
	annaField = `{"id":"0f1e2d3c4b5a6978","zone":"api","key":"anna","deny":true,"reason":"T-1","by":"127.0.0.1","created":"2026-01-02T03:04:05Z"}`
	ottoField = `{"id":"8796a5b4c3d2e1f0","zone":"api","key":"otto","limits":[{"max":10,"window":"1m"}],"created":"2026-01-02T03:04:06Z"`

	formerHash = map[string]string{"v": "143-1seuihk", "0f1e2d3c4b5a6978": annaField, "8796a5b4c3d2e1f0": ottoField + `}`}
	hash       = map[string]string{
		"v": "1795602776084-1x7k2p", "f": "143-1seuihk 1795602776084-1x7k2p",
		"8796a5b4c3d2e1f0":  ottoField + `,"v":"1795602776084-1x7k2p"}`,
		"-0f1e2d3c4b5a6978": "1795602700000-abc",
	}
	formerFile = `{"version":"143-1seuihk","records":[` + annaField + `]}`
	file       = `{"version":"1795602776084-1x7k2p","records":[` + annaField + `],"stamps":{"0f1e2d3c4b5a6978":"1795602776084-1x7k2p","8796a5b4c3d2e1f0":"1795602700000-abc"},"floor":"143-1seuihk"}`
)

// Stored overrides can be read by this build and by those before stamps, whoever has written them.
func TestStoredForms(t *testing.T) {
	want := func(what string, c Copy, floor string, stamps map[string]string, ids ...string) {
		t.Helper()
		var got []string
		for _, r := range c.Records {
			got = append(got, r.ID)
		}
		if slices.Sort(got); c.Floor != floor || !maps.Equal(c.Stamps, stamps) || !slices.Equal(got, ids) {
			t.Errorf("%s: got %+v", what, c)
		}
	}
	parsed := func(hash map[string]string) Copy {
		t.Helper()
		c, err := parse(hash["v"], hash)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	want("former hash", parsed(formerHash), "143-1seuihk",
		map[string]string{"0f1e2d3c4b5a6978": "143-1seuihk", "8796a5b4c3d2e1f0": "143-1seuihk"}, "0f1e2d3c4b5a6978", "8796a5b4c3d2e1f0")
	own := parsed(hash)
	want("hash", own, "143-1seuihk", map[string]string{"8796a5b4c3d2e1f0": "1795602776084-1x7k2p", "0f1e2d3c4b5a6978": "1795602700000-abc"}, "8796a5b4c3d2e1f0")
	again := fieldsOf(&own)
	again["v"] = own.Version
	if !maps.Equal(again, hash) {
		t.Errorf("written again: got %v, want %v", again, hash)
	}
	// A build before stamps takes each field whose record has the field's name as its ID, and writes its own without a stamp.
	former := maps.Clone(hash)
	for name, text := range hash {
		var r overrides.Record
		if json.Unmarshal([]byte(text), &r) == nil && r.ID == name && name != "8796a5b4c3d2e1f0" {
			t.Errorf("a build before stamps takes the field %s for a record", name)
		}
	}
	delete(former, "8796a5b4c3d2e1f0")
	former["v"], former["0f1e2d3c4b5a6978"] = "1795602776085-x", annaField
	theirs := parsed(former)
	want("changed by a build before stamps", theirs, "1795602776085-x", map[string]string{"0f1e2d3c4b5a6978": "1795602776085-x"}, "0f1e2d3c4b5a6978")
	if merged, _ := merge(&own, &theirs); !isSame(&merged, &theirs) {
		t.Errorf("a change by a build before stamps does not hold: %+v", merged)
	}

	for text, want := range map[string]string{formerFile: "143-1seuihk", file: "1795602776084-1x7k2p"} {
		var c Copy
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if c = withStamps(c); c.Floor != "143-1seuihk" || c.Stamps["0f1e2d3c4b5a6978"] != want {
			t.Errorf("%s: got %+v", text, c)
		}
	}
}

// A replica from before an override was deleted does not bring it back, however many others were deleted since; and
// records and tombstones stay bounded.
func TestBounds(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var c Copy
	change := func(isAll bool, ids ...string) {
		next := Copy{Read: at, Version: nextVersion(c.Version, at)}
		for _, id := range ids {
			next.Records = append(next.Records, overrides.Record{ID: id, Deny: true})
		}
		stamp(&c, &next, isAll)
		c = next
	}
	change(false, "kept", "first")
	old := c
	for n := range overrides.MaxRecords + 500 {
		change(false, "kept", fmt.Sprint(n))
	}
	if len(c.Stamps) > 2*overrides.MaxRecords {
		t.Errorf("%d stamps", len(c.Stamps))
	}
	for _, pair := range [][2]Copy{{old, c}, {c, old}} {
		if merged, _ := merge(&pair[0], &pair[1]); !isSame(&merged, &c) {
			t.Errorf("merged with an old one: %+v", merged.Records)
		}
	}
	var full, other []string
	for n := range overrides.MaxRecords {
		full, other = append(full, fmt.Sprint("a", n)), append(other, fmt.Sprint("b", n))
	}
	change(true, full...)
	if len(c.Stamps) != overrides.MaxRecords {
		t.Errorf("all were replaced: %d stamps", len(c.Stamps))
	}
	one := c
	c = Copy{Version: c.Version}
	change(false, other...)
	merged, dropped := merge(&one, &c)
	if len(merged.Records) != overrides.MaxRecords || dropped != overrides.MaxRecords || !strings.HasPrefix(merged.Records[0].ID, "b") {
		t.Errorf("of too many, %d were dropped, %d are left, as %s", dropped, len(merged.Records), merged.Records[0].ID)
	}
	if again, dropped := merge(&one, &merged); !isSame(&again, &merged) || dropped != 0 {
		t.Errorf("those that were dropped come back: %d", len(again.Records))
	}
	tooMany := map[string]string{}
	for n := range overrides.MaxRecords + 1 {
		tooMany[fmt.Sprint(n)] = fmt.Sprintf(`{"id":"%d"}`, n)
	}
	if _, err := parse("1-x", tooMany); err == nil {
		t.Error("no error for a hash with too many records")
	}
}
