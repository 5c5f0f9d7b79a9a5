package fallback_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// admission is a request that passed.
type admission struct {
	at    time.Time
	units int64
	// Whether the store still has to get it, and whether it never will: what
	// was sent did not arrive, and the sender does not know.
	owed, unheard bool
}

// oracle sees all that passes in a zone of one key.
type oracle struct {
	charge           window.Charge
	most             func(limit int64) int64
	seen             []admission
	settled, dropped int64 // units, when last looked at
}

// sum returns the units that passed within a window before and with now.
func (o *oracle) sum(now time.Time, length time.Duration, unheard bool) (units int64) {
	for _, a := range o.seen {
		if a.at.After(now.Add(-length)) && (unheard || !a.unheard) {
			units += a.units
		}
	}
	return units
}

// hear notes what became of the units that the store had to get.
func (o *oracle) hear(r *remote) {
	settled, dropped := r.booked(o.charge.Zone), r.lost(o.charge.Zone)
	for i := range o.seen {
		a := &o.seen[i]
		a.unheard = a.unheard || a.owed && dropped > o.dropped
		a.owed = a.owed && settled == o.settled && dropped == o.dropped
	}
	o.settled, o.dropped = settled, dropped
}

// check holds the limit. What the store never hears of only counts where this process
// decides, and for buckets, which hold no more than they do, nowhere.
func (o *oracle) check(t *testing.T, local bool) {
	t.Helper()
	_, bucket := o.charge.Algorithm.(window.GCRA)
	for _, p := range o.charge.Policies {
		if got, most := o.sum(time.Now(), p.Window, local && !bucket), o.most(p.Limit); got > most {
			t.Errorf("%s: %d units passed within %s, want %d at most (decided here: %v)", o.charge.Zone, got, p.Window, most, local)
		}
	}
}

// TestWalks lets a store come and go while requests come at random, and watches what
// passes: all that passes here counts, wherever it was decided, except that the store
// cannot know of units that were lost on the way to it.
func TestWalks(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			var local, denied, unheard int
			for seed := range 12 {
				synctest.Test(t, func(t *testing.T) {
					w := newWalk(t, seed, v.algorithm, v.most)
					for range 400 {
						w.step(t)
					}
					w.end(t)
					local, denied, unheard = local+w.local, denied+w.denied, unheard+w.unheard
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			if local < 250 || denied < 250 || unheard < 10 {
				t.Errorf("decided here and passed: %d, denied: %d, unheard: %d; want more for the walk to mean something", local, denied, unheard)
			}
		})
	}
}

type walk struct {
	*rand.Rand
	site                   *site
	zones                  []*oracle
	admitted               map[string]int64 // here, by zone, and surely not in the store
	local, denied, unheard int
}

func newWalk(t *testing.T, seed int, a window.Algorithm, most func(int64) int64) *walk {
	w := &walk{Rand: seeded(seed), site: newSite(t, newRemote()), admitted: make(map[string]int64)}
	for i := range 3 {
		c := charge(fmt.Sprint("zone", i), "key", 1+w.Int64N(12), time.Duration(1+w.IntN(4))*time.Second)
		c.Algorithm = a
		if _, ok := a.(window.Layers); !ok && i == 2 { // a second limit
			c.Policies = append(c.Policies, window.Policy{Limit: 2 * c.Policies[0].Limit, Window: 5 * c.Policies[0].Window})
		}
		w.zones = append(w.zones, &oracle{charge: c, most: most})
	}
	return w
}

func (w *walk) step(t *testing.T) {
	time.Sleep(time.Duration(w.IntN(4)*w.IntN(200)) * time.Millisecond)
	synctest.Wait() // for what is booked in the background
	if w.IntN(12) == 0 {
		w.site.remote.become([]mode{up, up, up, down, busy, lost, dropped}[w.IntN(7)])
	}
	first := w.IntN(len(w.zones))
	zones := w.zones[first : first+1+w.IntN(len(w.zones)-first)]
	charges := make([]window.Charge, len(zones))
	for i, o := range zones {
		charges[i] = o.charge
		charges[i].Cost = max(1, w.Int64N(4))
	}
	before := w.site.remote.taken()
	ds, cause := w.site.decide(t, charges...)
	for _, o := range zones {
		o.hear(w.site.remote)
	}
	if !window.Allowed(ds) {
		w.denied++
		return
	}
	for i, o := range zones {
		unknown := errors.Is(cause, window.ErrUnknown)
		charged := w.site.remote.taken()[o.charge.Zone] > before[o.charge.Zone]
		if cause != nil && !unknown {
			w.admitted[o.charge.Zone] += charges[i].Cost
		}
		if cause != nil {
			w.local++
		}
		if unknown && !charged {
			w.unheard++
		}
		o.seen = append(o.seen, admission{
			at: time.Now(), units: charges[i].Cost, owed: cause != nil && !unknown, unheard: unknown && !charged,
		})
		o.check(t, cause != nil)
	}
}

// end brings the store back, and wants what was admitted here to be there once at most.
func (w *walk) end(t *testing.T) {
	w.site.back()
	synctest.Wait()
	for _, o := range w.zones {
		o.charge.Cost = 0
		if _, err := w.site.Take(t.Context(), []window.Charge{o.charge}); err != nil {
			t.Error(err)
		}
		if got, most := w.site.remote.booked(o.charge.Zone), w.admitted[o.charge.Zone]; got > most {
			t.Errorf("%s: %d units were booked, and %d had passed here", o.charge.Zone, got, most)
		}
	}
	// A window later everything is given back.
	time.Sleep(time.Minute)
	w.site.away(t)
	for _, o := range w.zones {
		o.charge.Cost = 1
		if ds, _ := w.site.decide(t, o.charge); !window.Allowed(ds) {
			t.Errorf("%s: a request is denied when all windows are over: %+v", o.charge.Zone, ds)
		}
	}
	w.site.close(t)
}
