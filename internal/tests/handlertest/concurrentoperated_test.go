package handlertest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// openUntilDenied begins requests of anna until one is denied, or 9 are open. The function ends them.
func openUntilDenied(h caddyhttp.MiddlewareHandler) (n int, end func()) {
	var all []*one
	for n = 0; n < 9; n++ {
		it := (&open{h: h}).begin(Get("X-Key", "anna"))
		select {
		case <-it.begun:
			all = append(all, it)
			continue
		default:
		}
		break
	}
	return n, func() {
		for _, it := range all {
			_ = it.end()
		}
	}
}

// An override gives a key another number of requests at the same time, whatever selects the key, alone and beside limits. All are
// free afterwards.
func TestOverrideConcurrent(t *testing.T) {
	anna := "anna"
	const slots = `"concurrent":{"max":2}`
	onRedis := fmt.Sprintf(`,"store":{"module":"redis","address":[%q],"timeout":"10s"}`, redistest.Start(t).Addr)
	hashed := strings.Replace(onRedis, `"module"`, `"prefix":"hashed","hash_keys":["a secret of 16 bytes or more"],"module"`, 1)
	limits := func(max int64) []overrides.RecordLimit { return []overrides.RecordLimit{{Max: max, Window: "2h"}} }
	for name, c := range map[string]struct {
		record        overrides.Record
		alone, beside int // -1: refused
	}{
		"none":                 {overrides.Record{Pattern: "otto*", Concurrent: 5}, 2, 2},
		"key":                  {overrides.Record{Key: &anna, Concurrent: 5}, 5, 5},
		"values":               {overrides.Record{Values: []string{anna}, Concurrent: 1}, 1, 1},
		"pattern":              {overrides.Record{Pattern: "an*", Concurrent: 3}, 3, 3},
		"all":                  {overrides.Record{All: true, Concurrent: 3}, 3, 3},
		"factor":               {overrides.Record{Key: &anna, Factor: 2.4}, 5, 5},
		"small factor":         {overrides.Record{Key: &anna, Factor: 0.1}, 1, 1},
		"limits":               {overrides.Record{Key: &anna, Limits: limits(50)}, -1, 2},
		"limits below":         {overrides.Record{Key: &anna, Limits: limits(1)}, -1, 1},
		"both":                 {overrides.Record{Key: &anna, Limits: limits(50), Concurrent: 6}, -1, 6},
		"both with low limits": {overrides.Record{Key: &anna, Limits: limits(4), Concurrent: 6}, -1, 4},
		"deny":                 {overrides.Record{Key: &anna, Deny: true}, 0, 0},
		"exempt":               {overrides.Record{Key: &anna, Exempt: true}, 9, 9},
	} {
		for kind, of := range map[string][2]string{
			"alone": {slots}, "beside": {`"limits":[{"max":20,"window":"1h"}],` + slots},
			"placeholder": {`"concurrent":{"max":"{http.request.header.X-Max}","fallback":2}`},
			"redis":       {slots, onRedis}, "hashed": {slots, hashed},
		} {
			if kind == "hashed" && c.record.Pattern != "" {
				continue // is refused
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				want := c.alone
				if kind == "beside" {
					want = c.beside
				}
				h, ctx := operated(t, OfZone(t, ofKey+of[0], of[1]))
				setRecords(t, c.record)
				if want < 0 {
					if got := misfits(t, ZoneName(t)); len(got) != 1 || !strings.HasPrefix(got[0], "limits: the zone has no limit, only concurrent; send concurrent") {
						t.Errorf("misfits %q", got)
					}
					want = 2
				}
				n, end := openUntilDenied(h)
				if n != want {
					t.Errorf("%d are open, want %d", n, want)
				}
				held := float64(want)
				if c.record.Exempt {
					held = 0
				}
				if got := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); got != held {
					t.Errorf("%v are held, want %v", got, held)
				}
				i := inspect(t, ZoneName(t), anna)
				switch {
				case c.record.Exempt || c.record.Deny:
				case i.NeedsRequest != nil && i.NeedsRequest.Limits[0].Used != nil: // of the placeholder, which no override replaces
					if used := *i.NeedsRequest.Limits[0].Used; used != int64(want) {
						t.Errorf("inspected: %d are used", used)
					}
				case i.Concurrent == nil || i.Concurrent.Held != int64(want):
					t.Errorf("inspected: %+v", i.Concurrent)
				}
				end()
				if got := Metric(t, ctx, "caddy_sliding_window_concurrent", "zone", ZoneName(t)); got != 0 {
					t.Errorf("%v are held afterwards", got)
				}
			})
		}
	}
}

// The endpoint refuses what the zone does not count.
func TestOverrideConcurrentSet(t *testing.T) {
	for name, c := range map[string]struct{ zone, record, want string }{
		"no concurrent":           {`"limits":[{"max":20,"window":"1h"}]`, `"concurrent":5`, "concurrent: the zone has no concurrent; send limits, or write concurrent in the zone"},
		"both without concurrent": {`"limits":[{"max":20,"window":"1h"}]`, `"concurrent":5,"limits":[{"max":1,"window":"1m"}]`, "concurrent: the zone has no concurrent"},
		"no limit":                {`"concurrent":{"max":2}`, `"limits":[{"max":1,"window":"1m"}]`, "limits: the zone has no limit, only concurrent; send concurrent, or write a limit in the zone"},
		"too large":               {`"concurrent":{"max":2}`, `"concurrent":1000000000000`, "concurrent: limit 1000000000000 × window 15s is too large"},
		"factor":                  {`"limits":[{"max":20,"window":"1h"}],"concurrent":{"max":100000000000}`, `"factor":100`, "factor: concurrent: "},
	} {
		t.Run(name, func(t *testing.T) {
			key, of := "anna", ofKey
			if name == "a network" {
				key, of = "192.0.2.0/24", ""
			}
			operated(t, OfZone(t, of+c.zone, ""))
			if got := Admin(t, http.MethodPost, "overrides/set", fmt.Sprintf(`{"zone":%q,"key":%q,%s}`, ZoneName(t), key, c.record)); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	operated(t, OfZone(t, ofKey+`"concurrent":{"max":2}`, ""))
	if change := told[control.OverrideChange](t, http.MethodPost, "overrides/set", fmt.Sprintf(`{"zone":%q,"key":"anna","concurrent":5}`, ZoneName(t))); len(change.Warnings) != 0 {
		t.Errorf("a key without a request that is open: %v", change.Warnings)
	}
}

// An answer names what an override takes the place of, and header fields and placeholders show it.
func TestOverrideConcurrentTold(t *testing.T) {
	h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":20,"window":"1h"}],"concurrent":{"max":2}`, ""))
	for record, want := range map[string]string{
		`"concurrent":5`:                                     "2 at the same time",
		`"limits":[{"max":30,"window":"1h"}]`:                "20 in 1h",
		`"limits":[{"max":30,"window":"1h"}],"concurrent":5`: "20 in 1h, 2 at the same time",
		`"deny":true`:                                        "20 in 1h, 2 at the same time",
	} {
		change := told[control.OverrideChange](t, http.MethodPost, "overrides/set", fmt.Sprintf(`{"zone":%q,"key":"anna",%s}`, ZoneName(t), record))
		if got := change.InPlaceOf[change.Records[0].ID]; got != want {
			t.Errorf("%s: in place of %q, want %q", record, got, want)
		}
	}
	records := setRecords(t, overrides.Record{All: true, Concurrent: 5})
	r := Get("X-Key", "anna")
	w := Serve(t, r, h)
	zone := ZoneName(t)
	if got, want := w.Header().Get("RateLimit-Policy"), fmt.Sprintf(`"%s";q=20;w=3600, "%[1]s:concurrent";q=5;qu="concurrent-requests"`, zone); got != want {
		t.Errorf("RateLimit-Policy: got %s, want %s", got, want)
	}
	if got := Expand(r, "{http.sliding_window."+zone+".override}"); got != records[0].ID {
		t.Errorf("the placeholder of the override: got %q", got)
	}
}

// An inspection shows what is held of a key, by key and by request, alone and beside limits, and where the number comes from.
func TestInspectConcurrent(t *testing.T) {
	for name, c := range map[string]struct {
		zone          string
		limits        int
		source        string
		withoutNumber bool // a request tells it
	}{
		"alone":                {`"concurrent":{"max":2}`, 0, control.SourceConfig, false},
		"beside":               {`"limits":[{"max":20,"window":"1h"}],"concurrent":{"max":2}`, 1, control.SourceConfig, false},
		"a placeholder":        {`"concurrent":{"max":"{http.request.header.X-Max}","fallback":2}`, 0, "", true},
		"a placeholder beside": {`"limits":[{"max":20,"window":"1h"}],"concurrent":{"max":"{http.request.header.X-Max}","fallback":2}`, 1, control.SourceFallback, false},
		"shadow":               {`"concurrent":{"max":2},"enforce":"shadow"`, 0, control.SourceConfig, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := operated(t, OfZone(t, ofKey+c.zone, ""))
			if i := inspect(t, ZoneName(t), "anna"); c.withoutNumber != (i.WouldPass == nil) || !c.withoutNumber && (i.Concurrent.Held != 0 || i.Concurrent.Remaining != 2 || len(i.Concurrent.Holders) != 0 || !i.Passes()) {
				t.Errorf("nothing is held: got %+v", i)
			}
			var all []*one
			for range 2 {
				all = append(all, (&open{h: h}).begin(Get("X-Key", "anna")))
			}
			if name == "shadow" { // which decides beside the handlers
				Poll(t, "two are held", func() bool { return inspect(t, ZoneName(t), "anna").Concurrent.Held == 2 })
			}
			i := inspect(t, ZoneName(t), "anna")
			switch held := i.Concurrent; {
			case len(i.Limits) != c.limits:
				t.Errorf("limits: got %+v", i.Limits)
			case c.withoutNumber:
				if n := i.NeedsRequest; n == nil || len(n.Limits) != 1 || n.Limits[0].Used == nil || *n.Limits[0].Used != 2 || !n.Limits[0].Concurrent {
					t.Errorf("needs a request: got %+v", n)
				}
			case held.Max != 2 || held.Held != 2 || held.Remaining != 0 || held.Source != c.source || held.DecidedBy != "memory" || i.Passes():
				t.Errorf("two are held: got %+v, %+v", i, held)
			case name != "shadow" && (len(held.Holders) != 1 || held.Holders[0].Held != 2 || held.Holders[0].Name != ""):
				t.Errorf("held by %+v", held.Holders)
			}
			for _, it := range all {
				_ = it.end()
			}
		})
	}
}

// On a store that is shared, an inspection shows what each Caddy holds, by the names that status lists, and a reset has each write
// its number again.
func TestInspectConcurrentFleet(t *testing.T) {
	server := redistest.Start(t)
	h, _ := operated(t, OfZone(t, ofKey+`"concurrent":{"max":5}`, fmt.Sprintf(`,"store":{"module":"redis","address":[%q],"timeout":"10s"}`, server.Addr)))
	other := redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: 10 * time.Second})
	t.Cleanup(func() { _ = other.Close() })
	charge := window.Charge{Zone: ZoneName(t), Key: "anna", Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: 5, Window: 15 * time.Second}}}
	if ds, err := other.Take(t.Context(), []window.Charge{charge}); err != nil || !window.Allowed(ds) {
		t.Fatalf("another Caddy: %+v, %v", ds, err)
	}
	var all []*one
	for range 2 {
		all = append(all, (&open{h: h}).begin(Get("X-Key", "anna")))
	}
	var own string
	Poll(t, "this Caddy is a member", func() bool {
		for _, m := range status(t).Stores[0].Members {
			if m.Own {
				own = m.Name
			}
		}
		return own != ""
	})
	held := func() (told string) {
		i := inspect(t, ZoneName(t), "anna")
		if c := i.Concurrent; c.Held != 3 || c.Remaining != 2 || c.RedisKey == "" || c.DecidedBy != "redis" || len(i.Limits) != 0 || !i.Passes() {
			t.Errorf("got %+v, %+v", i, c)
		}
		for _, by := range i.Concurrent.Holders {
			told += fmt.Sprintf("%d by this one: %t; ", by.Held, by.Name == own)
		}
		return told
	}
	want := func() bool {
		told := held()
		return told == "2 by this one: true; 1 by this one: false; " || told == "1 by this one: false; 2 by this one: true; "
	}
	if !want() {
		t.Errorf("held %s, and this one is %s", held(), own)
	}
	answer := told[control.Reset](t, http.MethodPost, "reset", fmt.Sprintf(`{"zone":%q,"key":"anna"}`, ZoneName(t)))
	if !answer.Done || !strings.Contains(answer.Note, "each Caddy writes its true number again") {
		t.Errorf("reset: %+v", answer)
	}
	Poll(t, "each has written its number again", func() bool {
		i := inspect(t, ZoneName(t), "anna")
		return i.Concurrent.Held == 3 && len(i.Concurrent.Holders) == 2
	})
	for _, it := range all {
		_ = it.end()
	}
}

// While the store is away an inspection shows what this Caddy holds, and decides on that.
func TestInspectConcurrentAway(t *testing.T) {
	server := redistest.Start(t)
	h, _ := operated(t, OfZone(t, ofKey+`"concurrent":{"max":2}`, fmt.Sprintf(`,"store":{"module":"redis","address":[%q],"timeout":"1s"}`, server.Addr)))
	all := []*one{(&open{h: h}).begin(Get("X-Key", "anna"))}
	server.Kill()
	var i control.Inspection
	Poll(t, "the store is away", func() bool {
		i = inspect(t, ZoneName(t), "anna")
		return i.Concurrent != nil && i.Concurrent.DecidedBy == "local"
	})
	if c := i.Concurrent; c.Held != 1 || c.Remaining != 1 || len(c.Holders) != 0 || !i.Passes() || i.Store.State != control.StateAway {
		t.Errorf("one is held: got %+v, %+v", i, c)
	}
	if members := status(t).Stores[0].Members; members != nil && status(t).Stores[0].State == control.StateAway {
		t.Errorf("members of a store that is away: %+v", members)
	}
	all = append(all, (&open{h: h}).begin(Get("X-Key", "anna")))
	if i = inspect(t, ZoneName(t), "anna"); i.Concurrent.Held != 2 || i.Passes() {
		t.Errorf("two are held: got %+v", i.Concurrent)
	}
	for _, it := range all {
		_ = it.end()
	}
}

// Denials by requests at the same time count for the keys that are denied most, and in metrics: alone, beside limits and
// before tiers.
func TestConcurrentIsSeen(t *testing.T) {
	for name, zone := range map[string]string{"alone": `"concurrent":{"max":1}`, "beside": `"limits":[{"max":100,"window":"1h"}],"concurrent":{"max":1}`, "tiers": `"limits":[{"max":100,"window":"1h"},{"max":100,"window":"1h","tier":"24/48"}],"concurrent":{"max":1}`} {
		t.Run(name, func(t *testing.T) {
			h, ctx := operated(t, OfZone(t, `"top_talkers":true,`+zone, ""))
			it := (&open{h: h}).begin(Get())
			for range 3 {
				wantPass(t, "while one is open", h, false)
			}
			_ = it.end()
			top := told[control.Top](t, http.MethodPost, "top", fmt.Sprintf(`{"zone":%q}`, ZoneName(t)))
			if len(top.Keys) != 1 || top.Keys[0].Key != "192.0.2.1" || top.Keys[0].Count != 3 {
				t.Errorf("denied most: %+v", top)
			}
			if n := Metric(t, ctx, "caddy_sliding_window_decisions_total", "zone", ZoneName(t), "outcome", "denied"); n != 3 {
				t.Errorf("%v are counted as denied, want 3", n)
			}
		})
	}
}

// To reset a key frees nothing that is held, and the answer says so.
func TestResetConcurrent(t *testing.T) {
	for name, zone := range map[string]string{"alone": `"concurrent":{"max":1}`, "beside": `"limits":[{"max":1,"window":"1h"}],"concurrent":{"max":2}`} {
		t.Run(name, func(t *testing.T) {
			h, _ := operated(t, OfZone(t, ofKey+zone, ""))
			it := (&open{h: h}).begin(Get("X-Key", "anna"))
			answer := told[control.Reset](t, http.MethodPost, "reset", fmt.Sprintf(`{"zone":%q,"key":"anna"}`, ZoneName(t)))
			if !answer.Done || !strings.Contains(answer.Note, "requests that are open hold their slots") {
				t.Errorf("got %+v", answer)
			}
			i := inspect(t, ZoneName(t), "anna")
			if i.Concurrent.Held != 1 || len(i.Limits) > 0 && i.Limits[0].Used != 0 {
				t.Errorf("got %+v, %+v", i.Concurrent, i.Limits)
			}
			_ = it.end()
			wantPass(t, "afterwards", h, true, "X-Key", "anna")
		})
	}
}
