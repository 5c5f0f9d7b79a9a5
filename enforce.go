package slidingwindow

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/events"
	"github.com/slidingwindow/caddy-sliding-window/internal/template"
)

// checkEnforce reports why the zone cannot be enforced in a way.
func (z *Zone) checkEnforce(word string) error {
	percent, err := enforce.Percent(word)
	if err != nil {
		return err
	}
	if percent != enforce.All && percent != enforce.None && z.Key != "" && len(template.Names(z.Key)) == 0 {
		return fmt.Errorf("enforce %s: the key has no placeholder, so that all requests would be in or out together; write on or shadow", word)
	}
	if percent != enforce.All && z.settles() {
		option := "count_if"
		if z.CountIf == nil {
			option = "settle"
		}
		return fmt.Errorf("enforce %s and %s cannot be combined, for units counted beside the handlers are not given back; write on, or take out %s", word, option, option)
	}
	return nil
}

// enforcement is how a zone is enforced, if an operator says so while Caddy runs. It outlives
// reloads, and is the same for all handlers with the zone.
type enforcement struct {
	id       zoneID
	set      atomic.Pointer[enforceSet] // nil: as configured
	sync     enforce.Sync
	counters func() shadowCounters
}

// enforceSet holds until a time.
type enforceSet struct {
	percent int64
	until   time.Time
}

var enforcements = caddy.NewUsagePool()

// Destruct implements caddy.Destructor.
func (*enforcement) Destruct() error { return nil }

// acquireEnforcement returns that of a zone. Release it with releaseEnforcement.
func acquireEnforcement(id zoneID) *enforcement {
	value, _, _ := enforcements.LoadOrNew(id, func() (caddy.Destructor, error) {
		return &enforcement{id: id, counters: sync.OnceValue(func() shadowCounters { return newShadowCounters(id.zone) })}, nil
	})
	return value.(*enforcement)
}

func releaseEnforcement(id zoneID) { _, _ = enforcements.Delete(id) } // Destruct returns no error

// current returns what is set, or nil if nothing is or its time is over.
func (e *enforcement) current() *enforceSet {
	set := e.set.Load()
	if set == nil || time.Now().Before(set.until) {
		return set
	}
	if e.set.CompareAndSwap(set, nil) {
		emitEnforced(e.id, "config", "", "its time is over")
	}
	return nil
}

// enforced returns the percentage of keys whose requests the zone may deny now.
func (z *Zone) enforced() int64 {
	if z.control.set.Load() == nil {
		return z.percent
	}
	set := z.control.current()
	if set == nil || set.percent != enforce.None && z.checkBeside() != nil {
		return z.percent
	}
	return set.percent
}

// emitEnforced has handlers of events hear how a zone is enforced now.
func emitEnforced(id zoneID, word, until, reason string) {
	events.Emit(events.Enforce, map[string]any{"zone": id.zone, "store": id.store, "enforce": word, "until": until, "reason": reason})
}

// setEnforce enforces the zone as word says until a time, wherever the zone is used in this
// process. The word config goes back to the configuration.
func (z *Zone) setEnforce(word string, until time.Time) error {
	if word == enforce.Config {
		z.control.set.Store(nil)
		return nil
	}
	if word == "" {
		return fmt.Errorf("zone %s: enforce is missing; use one of on, shadow, config, or a percentage such as 25%%", z.Name)
	}
	err := z.checkEnforce(word)
	percent, _ := enforce.Percent(word)
	if err == nil && percent != enforce.All {
		err = z.use.checkShadow()
	}
	if err == nil && percent != enforce.None {
		err = z.checkBeside()
	}
	if err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.control.set.Store(&enforceSet{percent, until})
	return nil
}

// checkBeside reports why a zone that is configured as shadow cannot be enforced while Caddy runs.
// CL.THROTTLE decides on a request that one zone counts, and which zones those are is settled
// when the configuration loads.
func (z *Zone) checkBeside() error {
	if z.percent != enforce.None {
		return nil
	}
	for _, o := range z.use.beside {
		if o.native != nil && !o.use.script {
			return fmt.Errorf("CL.THROTTLE may count zone %s, and decides on one zone at a time; change enforce in the configuration", o.Name)
		}
	}
	return nil
}

// checkShadow reports why a zone cannot count without denying.
func (u *zoneUse) checkShadow() error {
	if u.noShadow {
		return errors.New("the store cannot keep counters of requests that are not denied apart; write enforce on, or take another store")
	}
	return nil
}
