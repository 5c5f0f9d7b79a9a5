// Package zone has zones of handlers that serve requests.
package zone

import (
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/compiled"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/placeholders"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/alert"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
	"github.com/slidingwindow/caddy-sliding-window/internal/openstore"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Live is a zone of a handler that serves requests: as it is compiled, and what it holds to decide and to count. It
// keeps nothing of a caddy.Context.
type Live struct {
	*compiled.Settings
	Shared    *Shared
	Control   *enforce.Control    // which goes before what is configured
	Top       *toptalkers.Tracker // nil: nothing is noted
	Load      *load.Limits        // nil without the option
	Bans      *banbook.Zone       // nil without the option ban
	Counters  Counters
	Empty     *placeholders.Empty
	Overrides *overridebook.InForce
	Recorder  alert.Recorder
	Running   *running.ActiveZone // the zone for operators
	Wider     []*Live             // its limit of requests at the same time, and its tiers, which count the networks of its keys, from narrow ones to wide ones

	hold   *zonepool.Hold // of what outlives reloads: Control, Recorder, Top and Load
	engine *window.Zone
	native *window.Zone // for CL.THROTTLE; nil: the zone or its store takes none. See onServer
	most   int64        // that other zones of the handler let it reserve
}

// Options are those of the handler of a zone.
type Options struct {
	Store    *openstore.SharedStore
	OnError  control.OnError
	Share    bool
	LogsKeys bool
}

// New returns a zone of a handler. Release it, also after an error.
func New(c *compiled.Settings, use *Shared, o Options) (*Live, error) {
	h := zonepool.Of(engine.ZoneID{Store: o.Store.ID, Zone: c.Name})
	z := &Live{
		Settings: c, Shared: use, hold: h, Control: enforce.Of(h), Recorder: alert.NewRecorder(h, c.Alerting != nil, o.LogsKeys),
		Overrides: new(overridebook.InForce), Empty: placeholders.NewEmpty(c.Name, c.Placeholders, c.EmptyKey != "", &use.noValueLog),
	}
	if c.Configured.TopTalkers {
		z.Top = toptalkers.Of(h, o.Store.Raw, "")
	}
	if c.Scaling != nil {
		z.Load = load.LimitsOf(h, *c.Scaling, c.PolicyName(), c.Algorithm, c.Policies)
	}
	if c.Ban != nil {
		z.Bans = o.Store.Bans.Zone(c.Name)
		z.Bans.LogKeys(o.LogsKeys)
	}
	if c.Percent != enforce.All {
		z.Control.Shadow() // so that they are there before the first request
	}
	z.Counters = newCounters(z)
	z.Running = newRunning(z, o)
	if err := z.compile(o.Store.Raw); err != nil {
		return z, err
	}
	return z, z.widen(o)
}

// compile has the engine check what charges of the zone have in common.
func (z *Live) compile(store window.Store) (err error) {
	if z.engine, err = z.Engine(z.Name, z.Algorithm); err != nil {
		return err
	}
	c, ok := store.(engine.AlgorithmChecker)
	if !ok || z.Native.Native == window.NativeOff || z.CheckNative() != nil {
		return nil
	}
	if err := c.CheckAlgorithm(z.Native); err != nil {
		return fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.native, err = z.Engine(z.Name, z.Native)
	return err
}

// Release gives back what outlives reloads.
func (z *Live) Release() { z.hold.Release() }

// onServer reports whether the store's server may decide on the zone, with CL.THROTTLE. The configuration must have
// loaded: a handler that comes later may have other zones beside this one.
func (z *Live) onServer() bool { return z.native != nil && !z.Shared.script }
