package window_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TestFacts fails for whatever was forgotten of an algorithm: its script, its facts, or its place
// among those that the conformance suite and the walks run.
func TestFacts(t *testing.T) {
	var names []string
	for _, f := range window.AllFacts() {
		name := f.Probe.Name()
		names = append(names, name)
		if window.FactsOf(f.Probe) != f {
			t.Errorf("%s: FactsOf returns those of another algorithm", name)
		}
		if f.Word == "" || f.Weight == nil || f.Lease == nil || f.Pack == nil {
			t.Fatalf("%s: a fact is missing: %+v", name, f)
		}
		c := window.Charge{Zone: "z", Key: "k", Cost: 1, Algorithm: f.Probe, Policies: []window.Policy{{Limit: 1, Window: 100 * time.Millisecond}}}
		if err := engine.CheckCharges([]window.Charge{c}); err != nil {
			t.Errorf("%s: the probe is no charge: %v", name, err)
		}
		one := f.Weight(&c)
		c.Policies = append(c.Policies, make([]window.Policy, 24)...)
		for i := range c.Policies {
			c.Policies[i] = window.Policy{Limit: 1, Window: 100 * time.Millisecond}
		}
		if many := f.Weight(&c); one < 1 || many <= one {
			t.Errorf("%s: weight %d with one limit and %d with %d", name, one, many, len(c.Policies))
		}
		if f.Held {
			continue // units that leave by themselves are what these tests are about; see windowtest's HeldWalk
		}
		for tests, all := range map[string][]window.Algorithm{"the conformance suite": windowtest.Algorithms(), "the walks": windowtest.Walked()} {
			if !slices.ContainsFunc(all, func(a window.Algorithm) bool { return a.Name() == name }) {
				t.Errorf("%s: %s leaves it out", name, tests)
			}
		}
	}
	slices.Sort(names)
	if scripts := slices.Sorted(slices.Values(lua.Algorithms)); !slices.Equal(names, scripts) {
		t.Errorf("facts of %s, scripts of %s", strings.Join(names, " "), strings.Join(scripts, " "))
	}
}
