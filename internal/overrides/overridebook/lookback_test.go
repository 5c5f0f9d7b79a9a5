package overridebook

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// looksBack returns how far back charges of a key look.
func looksBack(z *Subscriber, key string) time.Duration {
	return max(z.Longest, z.InForce.LookBack(key))
}

// age makes records of the book older that have ended, and makes the zones look again.
func age(b *Book, by time.Duration) {
	b.mu.Lock()
	for i := range b.copy.Past {
		until := b.copy.Past[i].Until.Add(-by)
		b.copy.Past[i].Until = &until
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
	all := overrides.Record{All: true, Limits: []overrides.RecordLimit{{Max: 10, Window: "2h"}}}
	want("no overrides", time.Minute, time.Minute)
	setRecords(t, b, limited("anna", "1h"))
	want("anna's", time.Hour, time.Minute)
	setRecords(t, b, limited("anna", "5m"), all)
	want("a longer one that does not decide", 2*time.Hour, 2*time.Hour)
	setRecords(t, b, overridestest.Denied("carl"))
	want("replaced and deleted", 2*time.Hour, 2*time.Hour)
	age(b, 90*time.Minute)
	want("90 minutes later", 2*time.Hour, 2*time.Hour)
	age(b, 29*time.Minute)
	want("a minute before two hours", 2*time.Hour, 2*time.Hour)
	age(b, 2*time.Minute)
	want("after two hours", time.Minute, time.Minute)
	if len(b.copy.Past) != 0 {
		t.Errorf("%d records are still known", len(b.copy.Past))
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

	many := make([]overrides.Record, overrides.MaxRecords)
	for n := range many {
		many[n] = limited(fmt.Sprint("key ", n), "1h")
		many[n].Until = &over
	}
	over = time.Now()
	b.mu.Lock()
	b.copy.Past = many
	b.mu.Unlock()
	for n := range 50 {
		setRecords(t, b, limited("otto", "1h"), limited("anna", fmt.Sprint(n+2, "h")))
	}
	setRecords(t, b, limited("otto", "1h"))
	if n := len(b.copy.Past); n != overrides.MaxRecords {
		t.Errorf("%d records that have ended are known, want %d", n, overrides.MaxRecords)
	}
	want("very many", 51*time.Hour, time.Hour)
}

// A record that was deleted is looked back on after a restart, also if the server was away when it began, and if it was
// deleted at another Caddy in the meantime.
func TestLookBackOutlivesARestart(t *testing.T) {
	server := redistest.Start(t)
	for name, store := range map[string]window.Store{"memory": inMemory(t), "redis": onRedis(t, server.Addr)} {
		t.Run(name, func(t *testing.T) {
			storage, elsewhere := new(storagetest.Storage), new(storagetest.Storage)
			before, other := bookOf(t, store, storage, newZone(t)), bookOf(t, store, elsewhere)
			want := func(what string, anna, otto time.Duration) {
				t.Helper()
				z := newZone(t)
				bookOf(t, store, storage, z)
				if a, o := looksBack(z, "anna"), looksBack(z, "otto"); a != anna || o != otto {
					t.Errorf("%s: anna looks back %s, otto %s; want %s and %s", what, a, o, anna, otto)
				}
			}
			setRecords(t, before, limited("anna", "1h"), limited("otto", "2h"))
			setRecords(t, before, limited("otto", "2h"))
			want("anna's is deleted", time.Hour, 2*time.Hour)
			if name == "redis" {
				setRecords(t, other)
				want("otto's, too", time.Hour, 2*time.Hour)
				server.Kill()
				want("the server is away", time.Hour, 2*time.Hour)
			}
		})
	}
}
