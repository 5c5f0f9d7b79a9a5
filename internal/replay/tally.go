package replay

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// tally counts what a plan has decided.
type tally struct {
	zones    []*zoneTally // in the order of the configuration
	byName   map[string]*zoneTally
	excluded map[string]bool
	maxKeys  int
	seed     maphash.Seed
}

// zoneTally counts what a zone has decided.
type zoneTally struct {
	info     *zoneInfo
	requests int64
	denied   int64
	shadow   int64   // of denied, by a zone that does not deny
	byLimit  []int64 // denied, by limit
	others   int64   // denied by none: without a key, by an override or by a ban
	tries    int64   // denied, without those that Retry-After had asked to wait
	were429  int64
	excluded int64
	hours    map[int64]*hour // by hours since 1970
	keys     keyCounts
	affected map[string]*affected
	dropped  int64 // affected keys that were forgotten
}

// hour counts the requests of an hour.
type hour struct{ requests, denied int64 }

// affected is a key that was denied. Times are in Unix milliseconds.
type affected struct {
	denied, tries int64
	first         int64
	since         int64 // of the denial that goes on; 0: a request has passed since
	until         int64 // to when the key has to wait
	longest       int64 // ms from the first denial in a row until a request passes
}

func newTally(p *plan, maxKeys int64, excluded map[string]bool) *tally {
	t := &tally{byName: make(map[string]*zoneTally), excluded: excluded, maxKeys: int(maxKeys), seed: maphash.MakeSeed()}
	for _, z := range p.zones {
		of := &zoneTally{
			info: z, byLimit: make([]int64, len(z.limits)), hours: make(map[int64]*hour), affected: make(map[string]*affected),
			keys: keyCounts{most: t.maxKeys, of: make(map[uint64]uint32)},
		}
		t.zones = append(t.zones, of)
		t.byName[z.name] = of
	}
	return t
}

// note counts what a zone decided on the request of a line.
func (t *tally) note(l *accesslog.Line, o request.Outcome) {
	z := t.byName[o.Zone.Name]
	if t.excluded[o.Key] {
		z.excluded++
		return
	}
	z.requests++
	if l.Status == 429 {
		z.were429++
	}
	now := l.Start / int64(time.Millisecond)
	h := z.hours[now/hourLast]
	if h == nil {
		h = new(hour)
		z.hours[now/hourLast] = h
	}
	h.requests++
	z.keys.add(maphash.String(t.seed, o.Key))
	a := z.affected[o.Key]
	if !o.Denied {
		if a != nil {
			a.since = 0
		}
		return
	}
	h.denied++
	z.denied++
	if o.Shadow {
		z.shadow++
	}
	if a == nil {
		a = z.affect(o.Key, t.maxKeys)
		a.first = now
	}
	z.noteDenial(a, now, &o)
}

const hourLast = int64(time.Hour / time.Millisecond)

// noteDenial counts a denial of a key.
func (z *zoneTally) noteDenial(a *affected, now int64, o *request.Outcome) {
	a.denied++
	if now >= a.until {
		a.tries++
		z.tries++
	}
	if len(o.Decisions) == 0 {
		z.others++
		a.until = max(a.until, now+o.Left.Milliseconds())
	}
	if a.since == 0 || now > a.until {
		a.since = now
	}
	for i, d := range o.Decisions {
		if d.Allowed {
			continue
		}
		z.byLimit[min(i, len(z.byLimit)-1)]++
		if wait := d.RetryAfter; wait != window.Never {
			a.until = max(a.until, now+wait.Milliseconds())
		}
	}
	a.longest = max(a.longest, max(a.until, now)-a.since)
}

// affect returns a new entry for a key. Of too many keys, those go that were denied least.
func (z *zoneTally) affect(key string, most int) *affected {
	if len(z.affected) >= max(most/4, 1000) {
		var counts []int64
		for _, a := range z.affected {
			counts = append(counts, a.denied)
		}
		slices.Sort(counts)
		for key, a := range z.affected {
			if a.denied <= counts[len(counts)/2] {
				delete(z.affected, key)
				z.dropped++
			}
		}
	}
	a := new(affected)
	z.affected[key] = a
	return a
}

// top returns the keys that were denied most.
func (z *zoneTally) top(n int) []string {
	var keys []string
	for key := range z.affected {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(z.affected[b].denied, z.affected[a].denied), cmp.Compare(a, b))
	})
	return keys[:min(n, len(keys))]
}

// keyCounts counts the requests of each key, by a hash of it. Of too many keys it keeps every second one, then every
// fourth: those whose hashes end in skip zeros.
type keyCounts struct {
	most int
	of   map[uint64]uint32
	skip uint // zeros at the end of the hashes that are kept
}

func (k *keyCounts) add(hash uint64) {
	if hash&(1<<k.skip-1) != 0 {
		return
	}
	k.of[hash]++
	for len(k.of) > k.most {
		k.skip++
		for h := range k.of {
			if h&(1<<k.skip-1) != 0 {
				delete(k.of, h)
			}
		}
	}
}

// keys returns how many keys there were, and whether that is an estimate.
func (k *keyCounts) keys() (n int64, estimated bool) { return int64(len(k.of)) << k.skip, k.skip > 0 }

// requests returns how many requests a key had, 0 if they were not counted.
func (k *keyCounts) requests(hash uint64) int64 { return int64(k.of[hash]) }
