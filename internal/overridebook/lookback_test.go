package overridebook

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// looksBack returns how far back charges of a key look.
func looksBack(z *Zone, key string) time.Duration { return max(z.Longest, z.InForce.LookBack(key)) }

// age makes records of the book older that have ended, and has the zones look again.
func age(b *Book, by time.Duration) {
	b.mu.Lock()
	for i := range b.past {
		until := b.past[i].Until.Add(-by)
		b.past[i].Until = &until
	}
	b.apply(time.Now())
	b.mu.Unlock()
	b.Tidy(time.Now())
}

// Charges look back for overrides of their own keys, whatever decides, until one window after the end: by deletion, by
// a smaller window, by another selector, or by time. Others do not, and none of it is kept for longer.
func TestOverridesLookBack(t *testing.T) {
	b, z := running(t)
	want := func(what string, anna, otto time.Duration) {
		t.Helper()
		if a, o := looksBack(z, "anna"), looksBack(z, "otto"); a != anna || o != otto {
			t.Errorf("%s: anna looks back %s, otto %s; want %s and %s", what, a, o, anna, otto)
		}
	}
	all := overrides.Record{All: true, Limits: []overrides.Limit{{Max: 10, Window: "2h"}}}
	want("no overrides", time.Minute, time.Minute)
	setRecords(t, b, limited("anna", "1h"))
	want("anna's", time.Hour, time.Minute)
	setRecords(t, b, limited("anna", "5m"), all)
	want("a longer one that does not decide", 2*time.Hour, 2*time.Hour)
	setRecords(t, b, denied("carl"))
	want("replaced and deleted", 2*time.Hour, 2*time.Hour)
	age(b, 90*time.Minute)
	want("90 minutes later", 2*time.Hour, 2*time.Hour)
	age(b, 29*time.Minute)
	want("a minute before two hours", 2*time.Hour, 2*time.Hour)
	age(b, 2*time.Minute)
	want("after two hours", time.Minute, time.Minute)
	if len(b.past) != 0 {
		t.Errorf("%d records are still known", len(b.past))
	}

	ending := limited("anna", "3h")
	ending.TTL = "1s"
	setRecords(t, b, ending)
	b.mu.Lock()
	over := time.Now().Add(-time.Hour)
	b.copy.Records[0].Until = &over
	b.apply(time.Now())
	b.mu.Unlock()
	want("an hour after its end by time", 3*time.Hour, time.Minute)
	setRecords(t, b, limited("otto", "1h"))
	want("taken out, after its end", 3*time.Hour, time.Hour)
	age(b, 2*time.Hour)
	want("three hours after its end", time.Minute, time.Hour)

	for n := range overrides.MaxRecords + 50 {
		setRecords(t, b, limited(fmt.Sprint("key ", n), "1h"), limited("anna", fmt.Sprint(n+2, "h")))
	}
	if len(b.past) > overrides.MaxRecords {
		t.Errorf("%d records that have ended are known", len(b.past))
	}
	want("very many", 1051*time.Hour, time.Minute)
}
