package slidingwindow

import (
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/windowtest"
)

func limited(key, window string) overrides.Record {
	r := keyed(key)
	r.Limits = []overrides.Limit{{Max: 10, Window: window}}
	return r
}

// looksBack returns how far back charges of a key of the only zone look.
func looksBack(h *Handler, key string) time.Duration {
	c, _ := h.Zones[0].chargeUnder(key, nil)
	return time.Duration(window.Longest(&c)) * time.Millisecond
}

// age makes records of the book older that have ended, and has the zones look again.
func age(b *overrideBook, by time.Duration) {
	b.mu.Lock()
	for i := range b.past {
		until := b.past[i].Until.Add(-by)
		b.past[i].Until = &until
	}
	b.apply(time.Now())
	b.mu.Unlock()
	b.tidy(time.Now())
}

// An override of an hour ends, and its key has limits of a minute for a while. What it uses then still counts when
// the override is set again, until an hour after its end, with each algorithm and on both stores. Units have to
// be kept for that long that no window needs at the time.
func TestEndedOverrideIsLookedBackOn(t *testing.T) {
	server := redistest.Start(t)
	for name, open := range map[string]func(*windowtest.Clock) window.Store{
		"memory": func(c *windowtest.Clock) window.Store {
			return memory.New(memory.Options{SweepInterval: -1, Now: c.Now})
		},
		"redis": func(c *windowtest.Clock) window.Store {
			return redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, Now: c.Now})
		},
	} {
		for _, algorithm := range []string{"zset", "log", "stream", "slices"} {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				h, _ := newHandler(t, zoneHandler(t, ofKey+fmt.Sprintf(`"limits":[{"max":100,"window":"1m"}],"algorithm":{"name":%q}`, algorithm), ""))
				b := runHandler(t, h, new(mapStorage))
				clock := windowtest.NewClock()
				store := open(clock)
				defer func() { _ = store.(interface{ Close() error }).Close() }()
				take := func(units int) (left int64) {
					t.Helper()
					for range units {
						c, _ := h.Zones[0].chargeUnder("anna", nil)
						ds, err := store.Take(t.Context(), []window.Charge{c})
						if err != nil || !window.Allowed(ds) {
							t.Fatalf("%v, %v", ds, err)
						}
						left = ds[0].Remaining
					}
					return left
				}
				setRecords(t, b, limited("anna", "1h"))
				if left := take(1); left != 9 {
					t.Errorf("%d are left in the hour, want 9", left)
				}
				clock.Add(50 * 60_000)
				setRecords(t, b) // it ends 50 minutes after its only request
				clock.Add(60_000)
				if left := take(5); left != 95 {
					t.Errorf("%d are left in the minute, want 95", left)
				}
				for _, minutes := range []int64{10, 9} {
					clock.Add(minutes * 60_000)
					age(b, time.Duration(minutes)*time.Minute)
					take(1)
				}
				setRecords(t, b, limited("anna", "1h")) // 70 minutes after its only request
				if left := take(1); left != 10-5-2-1 {
					t.Errorf("%d are left in the hour, want 2: 5 and 2 were used while the override was not there", left)
				}
			})
		}
	}
}

// Charges look back for overrides of their own keys, whatever decides, until one window after the end: by deletion, by
// a smaller window, by another selector, or by time. Others do not, and none of it is kept for longer.
func TestOverridesLookBack(t *testing.T) {
	h, _ := newHandler(t, zoneHandler(t, ofKey+`"limits":[{"max":100,"window":"1m"}]`, ""))
	b := runHandler(t, h, new(mapStorage))
	want := func(what string, anna, otto time.Duration) {
		t.Helper()
		if a, o := looksBack(h, "anna"), looksBack(h, "otto"); a != anna || o != otto {
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
