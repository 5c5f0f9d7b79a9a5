package fingerprint

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// No two charges are the same bytes that differ in anything that their decisions depend on, and what they do not depend on
// makes no difference.
func TestAppend(t *testing.T) {
	one := windowtest.Charge("zone", "key", 5, time.Minute)
	one.Algorithm, one.Cost = window.Slices{}, 6
	with := func(change func(c *window.Charge)) window.Charge {
		c := one
		c.Policies = slices.Clone(c.Policies)
		change(&c)
		return c
	}
	algo := func(a window.Algorithm) window.Charge { return with(func(c *window.Charge) { c.Algorithm = a }) }
	charges := map[string]window.Charge{
		"itself":            one,
		"zone":              with(func(c *window.Charge) { c.Zone = "zon" }),
		"zone and key":      with(func(c *window.Charge) { c.Zone, c.Key = "zon", "ekey" }),
		"zone, key and a 0": with(func(c *window.Charge) { c.Zone, c.Key = "zone\x00", "key" }),
		"key":               with(func(c *window.Charge) { c.Key = "Key" }),
		"a long key":        with(func(c *window.Charge) { c.Key = string(make([]byte, 1_000)) }),
		"a longer key":      with(func(c *window.Charge) { c.Key = string(make([]byte, 1_001)) }),
		"cost":              with(func(c *window.Charge) { c.Cost++ }),
		"window":            with(func(c *window.Charge) { c.Policies[0].Window = time.Hour }),
		"another policy":    with(func(c *window.Charge) { c.Policies = append(c.Policies, c.Policies[0]) }),
		"count":             algo(window.Slices{Count: 61}),
		"size":              algo(window.Slices{Size: time.Second}),
		"weighted":          algo(window.Slices{Weighted: true}),
		"min and max":       algo(window.Slices{Min: time.Second, Max: time.Minute}),
		"layers":            algo(window.Layers{Coarse: 10 * time.Second, Fine: time.Second}),
		"other layers":      algo(window.Layers{Coarse: 10 * time.Second, Fine: 2 * time.Second}),
		"zset":              algo(window.Zset{}),
		"log":               algo(window.Log{}),
		"stream":            algo(window.Stream{}),
		"stream, kept":      algo(window.Stream{Keep: time.Hour}),
		"gcra":              algo(window.GCRA{}),
		"gcra, burst":       algo(window.GCRA{Burst: 5}),
		"gcra, other burst": algo(window.GCRA{Burst: 4}),
		"gcra, native":      algo(window.GCRA{Native: window.NativeAuto}),
		"gcra, packed":      with(func(c *window.Charge) { c.Algorithm, c.Pack = window.GCRA{}, 1 }),
		"gcra, in more":     with(func(c *window.Charge) { c.Algorithm, c.Pack = window.GCRA{}, 65 }),
	}
	whole, denied := make(map[string]string), make(map[string]string)
	for name, c := range charges {
		for of, got := range map[*map[string]string][]byte{&whole: Append(nil, &c, c.Cost), &denied: AppendDenied(nil, &c)} {
			if other := (*of)[string(got)]; other != "" {
				t.Errorf("%s and %s are the same", name, other)
			}
			(*of)[string(got)] = name
		}
		more := c
		more.Fields, more.Cost = []string{"name", "value"}, 99
		if string(Append(nil, &more, c.Cost)) != string(Append(nil, &c, c.Cost)) {
			t.Errorf("%s: a field, or a cost that is not asked for, makes a difference", name)
		}
		// Limits make a difference, and none to what is denied: but for gcra, where they are a speed as well.
		more = c
		more.Policies = []window.Policy{{Limit: 4, Window: c.Policies[0].Window}}
		if _, speed := c.Algorithm.(window.GCRA); len(c.Policies) == 1 && (string(Append(nil, &more, c.Cost)) == string(Append(nil, &c, c.Cost)) || (string(AppendDenied(nil, &more)) == string(AppendDenied(nil, &c))) == speed) {
			t.Errorf("%s: a smaller limit", name)
		}
	}
}
