package handlertest

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// misfits returns why records of a zone are not applied.
func misfits(t *testing.T, zone string) (all []string) {
	t.Helper()
	for _, set := range told[control.OverrideList](t, http.MethodPost, "overrides/list", `{"zone":"`+zone+`"}`).Stores {
		all = slices.AppendSeq(all, maps.Values(set.Misfits))
	}
	return all
}

// A record that does not fit the zone is not applied, whatever the zone: its requests meet the limits of the
// configuration, and no error.
func TestOverrideMisfits(t *testing.T) {
	address := redistest.Start(t).Addr
	onRedis := `,"store":{"module":"redis","address":["` + address + `"],"timeout":"10s"}`
	two := []overrides.RecordLimit{{Max: 50, Window: "1m"}, {Max: 60, Window: "1h"}}
	for name, c := range map[string]struct {
		zone   string
		record overrides.Record
		want   string // empty: it is known only when a request comes
	}{
		"packed":  {`"limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"slices","count":3},"pack":1000`, overridestest.Limited("anna", two...), "limits: pack 1000: 2 limits are too many"},
		"factor":  {`"limits":[{"max":2000000000,"window":"1h"}]`, overridestest.Multiplied("anna", 1000), "factor: "},
		"dynamic": {`"limits":[{"max":"{http.request.header.X-Max}","window":"1h"}],"fallback":{"max":2000000000,"window":"1h"}`, overridestest.Multiplied("anna", 1000), ""},
		"layers":  {`"limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"slices","layers":{"coarse":"10s","fine":"1s"}}`, overridestest.Limited("anna", overrides.RecordLimit{Max: 5, Window: "1s"}), "limits: "},
		"native":  {`"limits":[{"max":3,"window":"1h"}],"algorithm":{"name":"gcra","native":"auto"}`, overridestest.Multiplied("anna", 2), "limits: CL.THROTTLE may count the zone"},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx := operated(t, OfZone(t, ofKey+c.zone, onRedis))
			setRecords(t, c.record)
			r := Get("X-Key", "anna")
			if w := Serve(t, r, h); w.Code != http.StatusNoContent {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if got := Expand(r, "{http.sliding_window.override}"); got != "" {
				t.Errorf("override %s is applied", got)
			}
			if n := Metric(t, ctx, "caddy_sliding_window_override_misfits_total", "zone", ZoneName(t)); n != 1 {
				t.Errorf("counted %v times, want once", n)
			}
			got := misfits(t, ZoneName(t))
			if c.want == "" && len(got) == 0 {
				return
			}
			if len(got) != 1 || c.want == "" || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// A key under limits with another window takes no lease, and none does for a while after a change.
func TestOverrideLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(6 * time.Second) }) // until Caddy's storage no longer looks after its locks
		f, store := NewFake(t, Decides(window.Decision{Allowed: true, Limit: 10}))
		h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":10,"window":"1h"}],"lease":{"units":5}`, `,"store":`+store))
		charge := func(key string) window.Charge {
			t.Helper()
			Serve(t, Get("X-Key", key), h)
			return f.Taken()[len(f.Taken())-1][0]
		}
		leases := func(key string) bool { return charge(key).Lease.Units > 0 }
		before := charge("other")
		if before.Lease.Units == 0 {
			t.Error("no lease without overrides")
		}
		setRecords(t, overridestest.Limited("same", overrides.RecordLimit{Max: 20, Window: "1h"}), overridestest.Limited("other", overrides.RecordLimit{Max: 20, Window: "1m"}))
		for _, key := range []string{"same", "other", "none"} {
			if leases(key) {
				t.Errorf("%s: a lease right after a change", key)
			}
		}
		time.Sleep(overridebook.Quiet - time.Second)
		if leases("none") {
			t.Error("a lease before the time is over")
		}
		time.Sleep(3 * time.Second) // until the book has looked
		for key, want := range map[string]bool{"same": true, "other": false, "none": true} {
			if leases(key) != want {
				t.Errorf("%s: lease %v, want %v", key, !want, want)
			}
		}
		setRecords(t)
		time.Sleep(overridebook.Quiet + 2*time.Second)
		if after := charge("other"); !reflect.DeepEqual(after, before) || len(misfits(t, ZoneName(t))) > 0 {
			t.Errorf("overrides that have gone leave something behind: %+v, and %+v before", after, before)
		}
	})
}

// A record may have more limits than the zone, or others, with every algorithm: no request fails.
func TestOverrideFailsNoRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		for name, algorithm := range map[string]string{
			"zset": `{"name":"zset"}`, "gcra": `{"name":"gcra"}`, "burst": `{"name":"gcra","burst":2}`, "packed": `{"name":"gcra"},"pack":1000`,
			"adaptive": `{"name":"slices","adaptive":{"min":"1s","max":"1m"}}`, "sized": `{"name":"slices","size":"1m"}`,
		} {
			t.Run(name, func(t *testing.T) {
				h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":3,"window":"1h"}],"algorithm":`+algorithm, ","+store))
				for _, limits := range [][]overrides.RecordLimit{{{Max: 50, Window: "1m"}, {Max: 60, Window: "2h"}}, {{Max: 1, Window: "1ms"}}, {{Max: 0, Window: "24h"}}, nil} {
					if limits == nil {
						setRecords(t)
					} else {
						setRecords(t, overridestest.Limited("anna", limits...))
					}
					for range 3 {
						if w := Serve(t, Get("X-Key", "anna"), h); w.Code != http.StatusNoContent && w.Code != http.StatusTooManyRequests {
							t.Errorf("%v: got %d %s", limits, w.Code, w.Body)
						}
					}
				}
			})
		}
	})
}

// CL.THROTTLE keeps limits itself, and only servers have it: in memory, limits hold with gcra, too.
func TestOverrideGCRAInMemory(t *testing.T) {
	h, _ := operated(t, OfZone(t, ofKey+`"limits":[{"max":3,"window":"24h"}],"algorithm":{"name":"gcra","burst":3}`, ""))
	setRecords(t, overridestest.Limited("anna", overrides.RecordLimit{Max: 4, Window: "24h"}, overrides.RecordLimit{Max: 100, Window: "48h"}), overridestest.Multiplied("otto", 0.5))
	for _, key := range []string{"anna", "otto", "none"} {
		r := Get("X-Key", key)
		if w := Serve(t, r, h); w.Code != http.StatusNoContent {
			t.Errorf("%s: got %d", key, w.Code)
		}
		want := map[string]string{"anna": "override", "otto": "override", "none": "config"}[key]
		if got := Expand(r, "{http.sliding_window."+ZoneName(t)+".source}"); got != want {
			t.Errorf("%s: source %s, want %s", key, got, want)
		}
	}
	if n := passes(t, h, "anna", 5); n != 2 {
		t.Errorf("anna: %d more passed, want 2: the burst of the zone", n)
	}
}
