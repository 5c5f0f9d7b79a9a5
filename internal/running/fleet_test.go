package running_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/storeclock"
	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/running"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

var schedules = flag.Int("schedules", 500, "how many random schedules TestFleetAgrees has")

const fleetZone = "fleet"

// fleetStore keeps the orders of a fleet. Time is that of the bubble of a test.
type fleetStore struct {
	mu             sync.Mutex // guards all
	random         *rand.Rand
	ahead          time.Duration // of the clock of the bubble
	away           bool
	back           chan struct{} // closed when it is back
	orders, backup map[string]string
	made           []madeOrder // by number, which is the reason of an order
}

// madeOrder is an order as an operator means it, by the clock of the store.
type madeOrder struct {
	mode      string
	at, until time.Time
}

func (f *fleetStore) now() time.Time { return time.Now().Add(f.ahead) }

// below returns a random number below n.
func (f *fleetStore) below(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

func (f *fleetStore) pause(most time.Duration) {
	time.Sleep(time.Duration(f.below(int(most))))
}

// view is what one Caddy has of the store.
type view struct {
	window.Store // nil
	*fleetStore
	name    string
	mu      sync.Mutex
	stopped chan struct{} // nil: the Caddy runs; else closed when it goes on
	killed  chan struct{}
	known   map[int]bool // numbers of orders that it was told, or has made
}

var errAway = errors.New("the store is away")

func (v *view) String() string { return v.name }

// runs waits until the Caddy is not stopped.
func (v *view) runs() {
	v.mu.Lock()
	stopped := v.stopped
	v.mu.Unlock()
	if stopped != nil {
		select {
		case <-stopped:
		case <-v.killed:
		}
	}
}

// reached waits for the store, as long as ctx allows.
func (v *view) reached(ctx context.Context) error {
	v.fleetStore.mu.Lock()
	away, back, refused := v.away, v.back, v.random.IntN(2) == 0
	v.fleetStore.mu.Unlock()
	switch {
	case !away:
		return nil
	case refused:
		return errAway
	}
	select {
	case <-back:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *view) ExchangeOrders(ctx context.Context, known, next map[string]string, _ time.Duration) (time.Time, map[string]string, error) {
	v.runs()
	v.pause(20 * time.Millisecond)
	if err := v.reached(ctx); err != nil {
		return time.Time{}, nil, err
	}
	v.fleetStore.mu.Lock()
	for zone, order := range next {
		if v.orders[zone] == known[zone] {
			v.orders[zone] = order
		}
	}
	now, orders := v.now(), maps.Clone(v.orders)
	v.fleetStore.mu.Unlock()
	v.pause(20 * time.Millisecond)
	v.runs() // the answer is old by now
	v.fleetStore.mu.Lock()
	lost := v.away && v.random.IntN(2) == 0
	v.fleetStore.mu.Unlock()
	if lost || ctx.Err() != nil {
		return time.Time{}, nil, errAway
	}
	v.knows(orders[fleetZone])
	return now, orders, nil
}

func (v *view) knows(order string) {
	if n, err := strconv.Atoi(enforce.ParseOrder(order).Reason); err == nil {
		v.mu.Lock()
		v.known[n] = true
		v.mu.Unlock()
	}
}

func (*view) ReadOverrides(context.Context, string) (string, map[string]string, error) {
	return "", nil, nil
}
func (*view) WriteOverrides(context.Context, string, string, []string, map[string]string) (string, error) {
	return "", errAway
}
func (*view) HashesKeys() bool                            { return false }
func (*view) HashKey(string, int) (sum [32]byte, ok bool) { return sum, false }

// zoneDecider enforces the zone of one Caddy.
type zoneDecider struct {
	decider
	control *enforce.Control
}

func (d *zoneDecider) Enforced() int64 {
	if set := d.control.Current(); set != nil {
		return set.Percent
	}
	return enforce.All
}

func (d *zoneDecider) Enforce(o enforce.Order) error {
	if o.Mode == enforce.Config {
		d.control.Reset()
		return nil
	}
	percent, err := enforce.Percent(o.Mode)
	d.control.Set(enforce.Setting{Percent: percent, Until: o.Until, Why: o.Why})
	return err
}

// fleetCaddy is a process.
type fleetCaddy struct {
	*view
	book *overridebook.Book
	zone *running.ActiveZone
	hold *zonepool.Hold
}

// start starts a Caddy whose clock is off until it knows that of the store.
func (f *fleetStore) start(name string) *fleetCaddy {
	off := []time.Duration{0, 30 * time.Second, -30 * time.Second}[f.below(3)]
	storeclock.Of(name).Learn(f.now().Add(off), uptime.Now()-time.Hour, uptime.Now()+time.Hour) // it is known badly
	v := &view{fleetStore: f, name: name, killed: make(chan struct{}), known: make(map[int]bool)}
	h := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: name}, Zone: fleetZone})
	z := &running.ActiveZone{Configured: control.ZoneInfo{Name: fleetZone}, Percent: enforce.All, Control: enforce.Of(h)}
	z.Decider = &zoneDecider{control: z.Control}
	z.InBook = &overridebook.Subscriber{
		Name: fleetZone, Orders: &z.Control.Sync, ApplyRemote: z.ApplyRemote, InForce: new(overridebook.InForce),
		NotApplied: prometheus.NewCounter(prometheus.CounterOpts{Name: "not_applied_total", Help: "None."}),
		Records:    func(overrides.Hasher) overrides.Target { return overrides.Target{Name: fleetZone} },
	}
	c := &fleetCaddy{v, overridebook.New(v), z, h}
	c.book.Begin([]*overridebook.Subscriber{z.InBook}, new(storagetest.Storage))
	return c
}

func (c *fleetCaddy) kill() {
	close(c.killed)
	c.book.End([]*overridebook.Subscriber{c.zone.InBook})
	c.hold.Release()
}

// order enforces the zone at the Caddy, as the admin API does. It returns when the order is made, and goes on to
// tell the store.
func (c *fleetCaddy) order(mode string, ttl time.Duration, group *sync.WaitGroup) {
	_ = c.book.Follow(context.Background())
	c.fleetStore.mu.Lock()
	n, at := len(c.made), c.now()
	c.made = append(c.made, madeOrder{mode, at, at.Add(ttl)})
	c.fleetStore.mu.Unlock()
	_ = c.zone.Propose(enforce.Order{Mode: mode, Why: control.Why{Reason: strconv.Itoa(n)}}, ttl)
	c.view.mu.Lock()
	c.known[n] = true
	c.view.mu.Unlock()
	group.Go(func() { _ = c.book.Follow(context.Background()) })
}

// meant returns what the zone may be, at the time that the store has, by those orders that any Caddy or the store
// knows: what the latest says. Orders that were made within a second at different Caddys have no order. sure is not set if one of
// them ends at about that time.
func (f *fleetStore) meant(caddys []*fleetCaddy) (words []string, sure bool) {
	known := make(map[int]bool)
	for _, c := range caddys {
		c.view.mu.Lock()
		maps.Copy(known, c.known)
		c.view.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, err := strconv.Atoi(enforce.ParseOrder(f.orders[fleetZone]).Reason); err == nil {
		known[n] = true
	}
	if len(known) == 0 {
		return []string{"on"}, true
	}
	latest := slices.Max(slices.Collect(maps.Keys(known)))
	sure = true
	for n := range known {
		o := f.made[n]
		if f.made[latest].at.Sub(o.at) > time.Second {
			continue
		}
		left := o.until.Sub(f.now())
		sure = sure && left.Abs() > time.Second
		if left < 0 || o.mode == enforce.Config {
			o.mode = "on"
		}
		words = append(words, o.mode)
	}
	return words, sure
}

// runFleet has a fleet live through random events, and reports what is not as it was meant 3 s after the last, or later.
func runFleet(seed uint64) (what string) {
	f := &fleetStore{random: rand.New(rand.NewPCG(seed, 0)), orders: make(map[string]string), backup: make(map[string]string)} //nolint:gosec // a test
	f.ahead = time.Duration(f.below(1000)) * time.Hour
	var caddys []*fleetCaddy
	var group sync.WaitGroup
	var log []string
	note := func(format string, args ...any) {
		log = append(log, fmt.Sprintf("%s "+format, append([]any{f.now().Format("05.000")}, args...)...))
	}
	for i := range 2 + f.below(2) {
		caddys = append(caddys, f.start(fmt.Sprint("caddy ", i)))
	}
	goOn := func(c *fleetCaddy) {
		c.view.mu.Lock()
		defer c.view.mu.Unlock()
		if c.stopped != nil {
			close(c.stopped)
			c.stopped = nil
		}
	}
	comeBack := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.away {
			f.away = false
			close(f.back)
		}
	}
	for range 3 + f.below(10) {
		f.pause(1500 * time.Millisecond)
		i := f.below(len(caddys))
		c := caddys[i]
		switch event := f.below(12); event {
		case 0, 1, 2, 3:
			c.view.mu.Lock()
			stopped := c.stopped != nil
			c.view.mu.Unlock()
			if stopped {
				continue
			}
			mode := []string{"shadow", "25%", "on", "config"}[f.below(4)]
			ttl := []time.Duration{time.Second, 3 * time.Second, 8 * time.Second, 10 * time.Minute}[f.below(4)]
			c.order(mode, ttl, &group)
			note("order %d at %s: %s for %s", len(f.made)-1, c.name, mode, ttl)
		case 4:
			c.view.mu.Lock()
			if c.stopped == nil {
				c.stopped = make(chan struct{})
			}
			c.view.mu.Unlock()
			note("%s is stopped", c.name)
		case 5:
			goOn(c)
			note("%s goes on", c.name)
		case 6:
			f.mu.Lock()
			clear(f.orders)
			f.mu.Unlock()
			note("flushed")
		case 7:
			f.mu.Lock()
			f.backup = maps.Clone(f.orders)
			f.mu.Unlock()
			note("snapshot of %s", f.orders)
		case 8:
			f.mu.Lock()
			f.orders = maps.Clone(f.backup)
			f.mu.Unlock()
			note("restored %s", f.backup)
		case 9:
			f.mu.Lock()
			if !f.away {
				f.away, f.back = true, make(chan struct{})
			}
			f.mu.Unlock()
			note("away")
		case 10:
			comeBack()
			note("back")
		case 11:
			if len(caddys) < 5 && f.below(2) == 0 {
				caddys = append(caddys, f.start(fmt.Sprint("caddy ", len(caddys))))
				note("%s starts", caddys[len(caddys)-1].name)
				continue
			}
			c.kill()
			caddys[i] = f.start(c.name)
			note("%s starts anew", c.name)
		}
	}
	for _, c := range caddys {
		goOn(c)
	}
	comeBack()
	note("last event")
	for _, wait := range []time.Duration{3 * time.Second, 2 * time.Second, 4 * time.Second} {
		time.Sleep(wait)
		words, sure := f.meant(caddys)
		for _, c := range caddys {
			word, _ := c.zone.Enforced()
			first, _ := caddys[0].zone.Enforced()
			if sure && (word != first || !slices.Contains(words, word)) && what == "" {
				note("%s is %s, %s is %s, want %s; the store has %s", caddys[0].name, first, c.name, word, words, f.orders)
				what = fmt.Sprintf("seed %d:", seed)
				for _, line := range log {
					what += "\n\t" + line
				}
			}
		}
	}
	group.Wait()
	for _, c := range caddys {
		c.kill()
	}
	return what
}

// All Caddys of a fleet enforce a zone as the latest order says, 3 s after the last event at most: orders that hold for shorter
// than it takes to hear of them, at several Caddys at a time, while some are stopped, start or have a wrong clock, and
// while the store is away, loses all or has what was there before.
func TestFleetAgrees(t *testing.T) {
	if err := caddy.Load([]byte(`{"admin":{"disabled":true,"config":{"persist":false}},"logging":{"logs":{"default":{"level":"PANIC"}}}}`), true); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = caddy.Stop() }()
	var split []string
	for from := 0; from < *schedules; from += 100 {
		synctest.Test(t, func(*testing.T) {
			for seed := from; seed < min(from+100, *schedules); seed++ {
				if what := runFleet(uint64(seed)); what != "" {
					split = append(split, what)
				}
			}
		})
	}
	if len(split) > 0 {
		t.Errorf("%d of %d fleets do not agree, as this one: %s", len(split), *schedules, split[0])
	}
}
