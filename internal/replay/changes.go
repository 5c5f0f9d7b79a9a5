package replay

import (
	"cmp"
	"slices"

	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// Against is what changes when the configuration takes the place of another one.
type Against struct {
	// Requests that a zone of the other configuration denies, and those that one of this configuration does.
	DeniedBefore int64 `json:"denied_before"`
	DeniedNow    int64 `json:"denied_now"`
	// Requests that only this configuration denies, and those that only the other one does.
	Newly    int64 `json:"newly_denied"`
	NoLonger int64 `json:"no_longer_denied"`
	// Keys that are denied newly, and those that are denied more often; no longer, and less often.
	NewlyKeys    int64 `json:"newly_denied_keys"`
	MoreKeys     int64 `json:"more_denied_keys"`
	NoLongerKeys int64 `json:"no_longer_denied_keys"`
	LessKeys     int64 `json:"less_denied_keys"`
	// The keys of both kinds whose denials change most.
	TopMore []Changed `json:"top_more_denied"`
	TopLess []Changed `json:"top_less_denied"`
}

// Changed is a key whose denials change.
type Changed struct {
	Zone   string `json:"zone"`
	Key    string `json:"key"` // or its hash
	Before int64  `json:"denied_before"`
	Now    int64  `json:"denied_now"`
}

// changes compares what two plans decide.
type changes struct {
	excluded map[string]bool
	zone     string
	denied   [2][]zoneKey // the request under way
	counts   map[zoneKey]*[2]int64
	sums     [2]int64
	newly    int64
	noLonger int64
}

type zoneKey struct{ zone, key string }

func newChanges(excluded map[string]bool, zone string) *changes {
	return &changes{excluded: excluded, zone: zone, counts: make(map[zoneKey]*[2]int64)}
}

// note notes what a plan, 0 or 1, decided on the request under way. Changes may be nil.
func (c *changes) note(plan int, o request.Outcome) {
	if c != nil && o.Denied && !c.excluded[o.Key] && (c.zone == "" || c.zone == o.Zone.Name) {
		c.denied[plan] = append(c.denied[plan], zoneKey{o.Zone.Name, o.Key})
	}
}

// end ends the request under way.
func (c *changes) end() {
	if c == nil {
		return
	}
	now, before := len(c.denied[0]) > 0, len(c.denied[1]) > 0
	switch {
	case now && !before:
		c.newly++
	case before && !now:
		c.noLonger++
	}
	for i := range c.denied {
		for _, k := range c.denied[i] {
			if c.counts[k] == nil {
				c.counts[k] = new([2]int64)
			}
			c.counts[k][i]++
		}
		if len(c.denied[i]) > 0 {
			c.sums[i]++
		}
		c.denied[i] = c.denied[i][:0]
	}
}

// report returns what changes; nil if there is one plan only.
func (c *changes) report(o *Options) *Against {
	if c == nil {
		return nil
	}
	a := &Against{DeniedBefore: c.sums[1], DeniedNow: c.sums[0], Newly: c.newly, NoLonger: c.noLonger}
	for k, n := range c.counts {
		one := Changed{Zone: k.zone, Key: k.key, Before: n[1], Now: n[0]}
		switch {
		case n[1] == n[0]:
			continue
		case n[1] == 0:
			a.NewlyKeys++
		case n[0] == 0:
			a.NoLongerKeys++
		case n[0] > n[1]:
			a.MoreKeys++
		default:
			a.LessKeys++
		}
		if n[0] > n[1] {
			a.TopMore = append(a.TopMore, one)
		} else {
			a.TopLess = append(a.TopLess, one)
		}
	}
	a.TopMore, a.TopLess = topChanged(a.TopMore, o), topChanged(a.TopLess, o)
	return a
}

// topChanged returns the keys whose denials change most, first those that are denied newly or no longer, as the report
// shows them.
func topChanged(keys []Changed, o *Options) []Changed {
	slices.SortFunc(keys, func(a, b Changed) int {
		return cmp.Or(compareBool(turns(b), turns(a)), cmp.Compare(change(b), change(a)), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Key, b.Key))
	})
	keys = append([]Changed{}, keys[:min(o.Top, len(keys))]...)
	for i := range keys {
		keys[i].Key = shownKey(keys[i].Key, o.Keys)
	}
	return keys
}

// change returns by how much the denials of a key change.
func change(c Changed) int64 { return max(c.Now-c.Before, c.Before-c.Now) }

// turns reports whether a key is denied newly or no longer.
func turns(c Changed) bool { return c.Before == 0 || c.Now == 0 }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
