package running_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func TestMain(m *testing.M) { os.Exit(caddyrun.Main(m, func() {})) }

// named is a store in memory with another name.
type named struct {
	window.Store
	name string
}

func (n *named) String() string { return n.name }

func newStore(t *testing.T, name string) *openstore.SharedStore {
	t.Helper()
	own := memory.New(memory.Options{SweepInterval: -1})
	s := openstore.Acquire(&named{own, name}, nil, false)
	t.Cleanup(func() { s.Release(false); _ = own.Close() })
	return s
}

func newZone(s *openstore.SharedStore, name string) *running.ActiveZone {
	return &running.ActiveZone{Configured: control.ZoneInfo{Name: name, Store: s.Name(), Algorithm: "zset"}, Store: s}
}

// Zones come by name and store, and the newest of each first, until they are removed. Two stores of one name count once.
func TestRegistry(t *testing.T) {
	a, b, again := newStore(t, "a"), newStore(t, "b"), newStore(t, "b")
	older := []*running.ActiveZone{newZone(b, "web"), newZone(b, "api"), newZone(a, "web")}
	newer := []*running.ActiveZone{newZone(again, "web"), newZone(a, "login")}
	names := make(map[*running.ActiveZone]string)
	for age, zones := range map[string][]*running.ActiveZone{"older": older, "newer": newer} {
		for _, z := range zones {
			names[z] = fmt.Sprintf("%s %s/%s", age, z.ID().Store.Name, z.ID().Zone)
		}
	}
	var r running.Registry
	want := func(what string, got [][]*running.ActiveZone, want ...[]string) {
		t.Helper()
		var all [][]string
		for _, zones := range got {
			var same []string
			for _, z := range zones {
				same = append(same, names[z])
			}
			all = append(all, same)
		}
		if !slices.EqualFunc(all, want, slices.Equal[[]string]) {
			t.Errorf("%s: got %q, want %q", what, all, want)
		}
	}

	want("nothing runs", r.List())
	r.Add(older)
	r.Add(newer)
	want("all", r.List(), []string{"older b/api"}, []string{"newer a/login"}, []string{"older a/web"}, []string{"newer b/web", "older b/web"})
	want("of a name", r.Find("web"), []string{"older a/web"}, []string{"newer b/web", "older b/web"})
	want("of another name", r.Find("other"))
	if got := r.Stores(); len(got) != 2 || got[0] != a || got[1].Name() != "b" {
		t.Errorf("got %d stores, want a and b", len(got))
	}
	r.Remove(older)
	want("after a reload", r.List(), []string{"newer a/login"}, []string{"newer b/web"})
	if got := r.Stores(); len(got) != 2 || got[1] != again {
		t.Errorf("after a reload: got %d stores, want a and the newer b", len(got))
	}
	r.Remove(newer)
	want("after the end", r.List())
}

// decider says of a zone what a test has set.
type decider struct{ percent int64 }

func (d *decider) Charge(key string) (window.Charge, *overrides.Rule, running.Needs) {
	return window.Charge{Zone: "api", Key: key, Cost: 1}, nil, running.Needs{}
}
func (*decider) InTiers(*window.Charge) []running.TierCharge   { return nil }
func (*decider) TierOf(string) string                          { return "" }
func (*decider) SourceOf(*window.Charge, window.Policy) string { return control.SourceFallback }
func (d *decider) Enforced() int64                             { return d.percent }
func (d *decider) Enforce(o enforce.Order) (err error) {
	d.percent, err = enforce.Percent(o.Mode)
	return err
}

// What holds is told until when, unless it is as configured or the zone cannot be enforced so.
func TestEnforced(t *testing.T) {
	d := &decider{percent: 25}
	h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: "a"}, Zone: "api"})
	defer h.Release()
	z := newZone(newStore(t, "a"), "api")
	z.Percent, z.Decider, z.Control = 100, d, enforce.Of(h)
	want := func(what, word, until string) {
		t.Helper()
		if got, gotUntil := z.Enforced(); got != word || gotUntil != until {
			t.Errorf("%s: enforced %q until %q, want %q until %q", what, got, gotUntil, word, until)
		}
	}
	want("configured", "on", "")
	z.Control.Set(enforce.Setting{Percent: 25, Until: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)})
	want("set", "25%", "2099-01-01T00:00:00Z")
	d.percent = 100
	want("set, and not possible", "on", "")
}

// An inspection shows what is used, and the override of the key in place of where the limits come from.
func TestInspection(t *testing.T) {
	h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: "a"}, Zone: "api"})
	defer h.Release()
	z := newZone(newStore(t, "fake of a test"), "api")
	z.Decider, z.Control, z.Percent = &decider{}, enforce.Of(h), 100
	z.InBook = &overridebook.Subscriber{Name: "api", InForce: new(overridebook.InForce)}
	c := window.Charge{Zone: "api", Key: "anna", Cost: 2, Algorithm: window.Zset{}, Policies: []window.Policy{{Limit: 5, Window: time.Minute}, {Limit: 0, Window: 90 * time.Second}}}
	ds := []window.Decision{
		{Allowed: true, Limit: 5, Remaining: 2, ResetAfter: 30 * time.Second},
		{Limit: 0, RetryAfter: window.Never},
	}
	i := z.Inspection(t.Context(), &c, nil, running.Needs{}, ds, []int64{3, 0}, engine.SourceStore, nil)
	if i.Zone != "api" || i.Key != "anna" || *i.Cost != 2 || i.WouldPass == nil || *i.WouldPass || i.DecidedBy != "fake" || i.Enforce != "on" || i.Override != nil {
		t.Errorf("got %+v", i)
	}
	first, second := i.Limits[0], i.Limits[1]
	if first.Used != 3 || first.Remaining != 2 || first.ResetAfter != 30 || first.RetryAfter == nil || *first.RetryAfter != 0 || first.Source != control.SourceFallback {
		t.Errorf("the first limit: got %+v", first)
	}
	if second.Window != "1m30s" || second.Used != 0 || second.RetryAfter != nil {
		t.Errorf("the second limit: got %+v", second)
	}

	rule := &overrides.Rule{Record: &overrides.Record{ID: "0123456789abcdef", Concurrent: 4}}
	held := window.Charge{Zone: "api", Key: "anna", Cost: 1, Algorithm: window.Concurrent{}, Policies: []window.Policy{{Limit: 4, Window: 15 * time.Second}}}
	slots := z.Inspection(t.Context(), &held, rule, running.Needs{}, []window.Decision{{Limit: 4}}, []int64{5}, engine.SourceLocal, window.ErrUnavailable)
	if c := slots.Concurrent; c == nil || len(slots.Limits) != 0 || c.Max != 4 || c.Held != 5 || c.Remaining != 0 || c.Source != control.SourceOverride || c.DecidedBy != "local" || c.Holders == nil {
		t.Errorf("at the same time: got %+v, %+v", slots, c)
	}
	passes := true
	if i.WouldPass = &passes; i.Concurrent != nil {
		t.Errorf("without concurrent: got %+v", i.Concurrent)
	}
	if i.AddTier(slots); i.Passes() || i.Concurrent != slots.Concurrent || i.Override != rule.Record || i.Tiers != nil {
		t.Errorf("beside limits: got %+v", i)
	}

	i = z.Inspection(t.Context(), &c, rule, running.Needs{}, ds, []int64{3, 0}, engine.SourceLocal, window.ErrUnavailable)
	if i.Override != rule.Record || i.Limits[0].Source != control.SourceOverride || i.Limits[1].Source != control.SourceOverride {
		t.Errorf("with an override: got %+v", i)
	}
	if i.DecidedBy != string(engine.SourceLocal) || i.Store.State != control.StateAway || i.Store.Cause != window.ErrUnavailable.Error() {
		t.Errorf("away: got %+v", i)
	}
}
