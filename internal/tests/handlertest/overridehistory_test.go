package handlertest

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// Whatever limits a record has for a while, the limits of the zone hold when it has gone: with 10 in 1h used up,
// none pass. It is so for a record with a longer window, too.
func TestOverrideKeepsHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		for name, algorithm := range map[string]string{
			"zset": `{"name":"zset"}`, "log": `{"name":"log"}`, "stream": `{"name":"stream"}`, "slices": `{"name":"slices"}`,
			"weighted": `{"name":"slices","weighted":true}`, "layers": `{"name":"slices","layers":{"coarse":"1m","fine":"10s"}}`,
		} {
			t.Run(name, func(t *testing.T) {
				h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":10,"window":"1h"}],"algorithm":`+algorithm, ","+store))
				if n := passes(t, h, "anna", 12); n != 10 {
					t.Fatalf("%d passed, want 10", n)
				}
				for _, length := range []string{"1m", "30m", "3h"} {
					setRecords(t, overridestest.Limited("anna", overrides.RecordLimit{Max: 100, Window: length}))
					if n := passes(t, h, "anna", 5); n != 5 {
						t.Errorf("under 100 in %s: %d passed, want 5", length, n)
					}
					setRecords(t)
					if n := passes(t, h, "anna", 5); n != 0 {
						t.Errorf("after 100 in %s: %d passed, want 0", length, n)
					}
				}
			})
		}
	})
}

// ended is a zone of which a key had an override of an hour. Each Caddy of the test runs until the end of a subtest.
type ended struct {
	store  *Fake // decides as a store with the clock does
	clock  *windowtest.Clock
	config string
	record overrides.Record
	end    int64 // on the clock

	storage overridebook.Storage // of the last Caddy
}

// caddy provisions a Caddy. If the override has ended, it did some time ago, as Caddy's storage tells.
func (e *ended) caddy(t *testing.T, ago time.Duration) (h caddyhttp.MiddlewareHandler, start func()) {
	t.Helper()
	if e.storage != nil {
		over := time.Now().Add(-ago)
		past := e.record
		past.Until = &over
		place := overridebook.NewFile("", false, func(err error) { t.Error(err) })
		place.Use(e.storage)
		if err := place.Save(overridebook.Copy{Version: "1-x", Past: []overrides.Record{past}}); err != nil {
			t.Fatal(err)
		}
	}
	h, ctx := New(t, e.config)
	e.storage = ctx.Storage()
	return h, func() { Start(t, ctx) }
}

// take spends units of a key, one after the other, and returns how many are left.
func (e *ended) take(t *testing.T, h caddyhttp.MiddlewareHandler, key string, units int) (left string) {
	t.Helper()
	for range units {
		r := Get("X-Key", key)
		if w := Serve(t, r, h); w.Code != http.StatusNoContent {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		left = Expand(r, "{http.sliding_window.remaining}")
	}
	return left
}

// looksBack returns how far back charges of a key look.
func (e *ended) looksBack(t *testing.T, h caddyhttp.MiddlewareHandler, key string) time.Duration {
	t.Helper()
	Serve(t, Get("X-Key", key, "X-Cost", "0"), h)
	taken := e.store.Taken()
	return time.Duration(taken[len(taken)-1][0].Longest()) * time.Millisecond
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
			return redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second, Now: c.Now}).Engine()
		},
	} {
		for _, algorithm := range []string{"zset", "log", "stream", "slices"} {
			t.Run(name+" "+algorithm, func(t *testing.T) {
				e := &ended{clock: windowtest.NewClock()}
				real := open(e.clock)
				t.Cleanup(func() { _ = real.(interface{ Close() error }).Close() })
				var store string
				e.store, store = NewFake(t, real.Take)
				e.config = OfZone(t, ofKey+`"cost":"{http.request.header.X-Cost}","limits":[{"max":100,"window":"1m"}],"algorithm":{"name":"`+algorithm+`"}`, `,"on_error":"deny","store":`+store)
				anna := overridestest.Limited("anna", overrides.RecordLimit{Max: 10, Window: "1h"})
				anna.Zone = ZoneName(t)

				t.Run("while it holds", func(t *testing.T) {
					h, start := e.caddy(t, 0)
					start()
					e.record = setRecords(t, anna)[0]
					if left := e.take(t, h, "anna", 1); left != "9" {
						t.Errorf("%s are left in the hour, want 9", left)
					}
					e.clock.Add(50 * 60_000)
					setRecords(t) // it ends 50 minutes after its only request
					e.end = e.clock.Now()
					e.clock.Add(60_000)
					if left := e.take(t, h, "anna", 5); left != "95" {
						t.Errorf("%s are left in the minute, want 95", left)
					}
				})
				for i, minutes := range []int64{10, 9} {
					t.Run("after "+strconv.FormatInt(minutes, 10)+" more minutes", func(t *testing.T) {
						e.clock.Add(minutes * 60_000)
						h, start := e.caddy(t, time.Duration(e.clock.Now()-e.end)*time.Millisecond)
						if i > 0 { // else the site serves before the app starts
							start()
						}
						if anna, otto := e.looksBack(t, h, "anna"), e.looksBack(t, h, "otto"); anna != time.Hour || otto != time.Minute {
							t.Errorf("anna looks back %s, otto %s; want an hour and a minute", anna, otto)
						}
						e.take(t, h, "anna", 1)
					})
				}
				t.Run("when it is forgotten", func(t *testing.T) {
					h, start := e.caddy(t, 61*time.Minute)
					if back := e.looksBack(t, h, "anna"); back != time.Minute {
						t.Errorf("anna looks back %s an hour after the end, want a minute", back)
					}
					start()
					setRecords(t, anna) // 70 minutes after its only request
					if left := e.take(t, h, "anna", 1); left != strconv.Itoa(10-5-2-1) {
						t.Errorf("%s are left in the hour, want 2: 5 and 2 were used while the override was not there", left)
					}
				})
			})
		}
	}
}
