package slidingwindow

import (
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/routes"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// liveZone is a zone in a handler that serves requests: as it is configured and compiled, and what it holds to decide and to
// count.
type liveZone struct {
	*Zone

	matchers     caddyhttp.MatcherSets
	engine       *window.Zone
	engineNative *window.Zone // for CL.THROTTLE; nil: the zone or its store takes none. See onServer
	use          *zoneUse
	hold         *zonepool.Hold      // of what outlives reloads: control, seen, top and load
	control      *enforce.Control    // which goes before what is configured
	top          *toptalkers.Tracker // nil: nothing is noted
	load         *load.Limits        // nil without the option
	counters     zoneCounters
	empty        *placeholders.Empty
	overrides    *overridebook.InForce
	recorder     alert.Recorder
}

// provision makes z ready for requests.
func (z *liveZone) provision(ctx caddy.Context, store window.Store, logsKeys bool) error {
	use := z.use
	z.control = enforce.Of(z.hold)
	z.recorder = alert.NewRecorder(z.hold, z.Alert != nil, logsKeys)
	if z.TopTalkers {
		z.top = toptalkers.Of(z.hold, store)
	}
	if z.Load != nil {
		z.load = load.LimitsOf(z.hold, z.Load.options, z.c.Algorithm, z.c.Policies)
	}
	if !use.warned {
		use.warned = true
		placeholders.Warn(ctx, z.Name, z.Key, z.names(), z.isInHandler)
		z.warn(ctx.Logger())
	}
	routes.WarnOfPlace(ctx, z.Name, z.MatcherSetsRaw)
	if z.MatcherSetsRaw != nil {
		loaded, err := ctx.LoadModule(z.Zone, "MatcherSetsRaw")
		if err != nil {
			return fmt.Errorf("zone %s: loading matchers: %w", z.Name, err)
		}
		if err := z.matchers.FromInterface(loaded); err != nil {
			return fmt.Errorf("zone %s: %w", z.Name, err)
		}
	}
	if z.Key == "" {
		z.Key = template.DefaultKey
	}
	if z.c.Percent != enforce.All {
		z.control.Shadow() // so that they are there before the first request
	}
	var err error
	if z.engine, err = z.c.Engine(z.Name, z.c.Algorithm); err != nil {
		return err
	}
	if c, ok := store.(engine.AlgorithmChecker); ok && z.c.Native.Native != window.NativeOff && checkNative(z.Zone, z.c, true) == nil {
		if err := c.CheckAlgorithm(z.c.Native); err != nil {
			return fmt.Errorf("zone %s: %w", z.Name, err)
		}
		if z.engineNative, err = z.c.Engine(z.Name, z.c.Native); err != nil {
			return err
		}
	}
	z.overrides = new(overridebook.InForce)
	z.counters.DecisionCounters = metrics.NewDecisionCounters(z.Name)
	z.empty = placeholders.NewEmpty(z.Name, z.names(), z.EmptyKey != "", &use.noValueLog)
	if z.settles() {
		z.counters.settled = newSettledCounters(z)
	}
	return nil
}

// onServer reports whether the store's server may decide on the zone, with CL.THROTTLE. The configuration must have
// loaded: a handler that comes later may have other zones beside this one.
func (z *liveZone) onServer() bool { return z.engineNative != nil && !z.use.script }

// applies reports whether the zone counts the request.
func (z *liveZone) applies(r *http.Request) (bool, error) {
	if len(z.matchers) == 0 {
		return true, nil
	}
	return z.matchers.AnyMatchWithError(r)
}

// charge returns what the request wants to spend on a key, and which options came out empty.
func (z *liveZone) charge(key string, repl *caddy.Replacer) (c window.Charge, empty placeholders.EmptyOptions) {
	own := z.engine
	if z.onServer() {
		own = z.engineNative
	}
	c = own.Charge(key, z.c.Cost)
	switch {
	case z.c.Policies == nil:
		if c.Policies, empty = z.c.ExpandLimits(z.c.Limits, repl); z.load != nil {
			z.load.Scale(c.Policies)
		}
	case z.load != nil:
		c.Policies = z.load.Now()
	}
	if z.c.Spends.Dynamic {
		var none bool
		if c.Cost, none = z.c.ExpandCost(repl); none {
			empty |= placeholders.NoCost
		}
	}
	return c, empty
}
