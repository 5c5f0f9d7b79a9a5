// Package events tells handlers of Caddy's events app what happened.
package events

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
)

// Events that handlers of Caddy's events app hear of. A request by itself causes no event.
const (
	Alert    = "sliding_window_alert"
	Resolved = "sliding_window_alert_resolved"
	Away     = "sliding_window_store_away"
	Back     = "sliding_window_store_back"
	Override = "sliding_window_override_changed"
	Enforce  = "sliding_window_enforce_changed"
	Memory   = "sliding_window_memory_high"

	Banned    = "sliding_window_banned"
	BanLifted = "sliding_window_ban_lifted"
)

// eventNames are all of them.
var eventNames = []string{Alert, Resolved, Away, Back, Override, Enforce, Memory, Banned, BanLifted}

const (
	maxEvents     = 64          // that wait
	lastEventWait = time.Second // for the event under way, when Caddy stops or reloads
)

type Event struct {
	Name string
	Data map[string]any
}

// bus is where events wait for the Sender that started last. While no configuration runs there are no Senders,
// and nothing waits.
var bus struct {
	sync.Mutex // guards what follows; held for a few instructions
	waiting    []Event
	senders    []*Sender     // from Start to Stop, in this order
	sending    *Sender       // whose handlers have an event; nil: none
	changed    chan struct{} // closed when any of this changes; nil: no waiter
}

// change tells senders that something has changed. bus must be locked.
func change() {
	if bus.changed != nil {
		close(bus.changed)
		bus.changed = nil
	}
}

// Emit sends an event to the handlers of the running configuration, later and one event after
// the other. It never waits: an event for which there is no room is dropped, and counted. data must
// not be changed after that.
func Emit(name string, data map[string]any) {
	bus.Lock()
	defer bus.Unlock()
	switch {
	case len(bus.senders) == 0:
	case len(bus.waiting) == maxEvents:
		metrics.EventsDroppedTotal.WithLabelValues(name).Inc()
	default:
		bus.waiting = append(bus.waiting, Event{name, data})
		change()
	}
}

// Sender hands events to the handlers of one configuration, from App.Start to App.Stop. Caddy runs
// handlers inline, so that a slow one delays the events that follow, and nothing else.
//
// During a reload there are two. From the Start of the new one on, events are its own: they wait until its
// configuration has started, and until the event is over that the old one is busy with. If the new
// configuration does not start, the old one goes on.
type Sender struct {
	emit    func(Event)   // returns when the handlers have
	started chan struct{} // closed when all apps have started; see Handle
	once    sync.Once
	stopped chan struct{} // closed by Stop
	done    chan struct{} // closed when no event is under way any more
}

// NewSender returns a sender for the configuration of ctx, which is being provisioned.
func NewSender(ctx caddy.Context) (*Sender, error) {
	value, err := ctx.App("events")
	if err != nil {
		return nil, err
	}
	for _, name := range eventNames {
		metrics.EventsDroppedTotal.WithLabelValues(name) // so that it is there before the first is dropped
	}
	app := value.(*caddyevents.App)
	s := newSender(func(e Event) {
		own := ctx // of the app; events need one that lives, with a module. Handlers get a replacer that knows this event only
		own.Context = context.WithValue(ctx.Context, caddy.ReplacerCtxKey, caddy.NewReplacer())
		app.Emit(own, e.Name, e.Data)
	})
	return s, app.On("started", s)
}

func newSender(emit func(Event)) *Sender {
	return &Sender{emit: emit, started: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{})}
}

// Handle implements caddyevents.Handler. Caddy starts its apps in any order, and before the events
// app has started there must be no event of others.
func (s *Sender) Handle(context.Context, caddy.Event) error {
	s.once.Do(func() { close(s.started) })
	return nil
}

func (s *Sender) Start() {
	bus.Lock()
	bus.senders = append(bus.senders, s)
	change()
	bus.Unlock()
	go s.run()
}

// Stop returns when the event under way is over, or after lastEventWait.
func (s *Sender) Stop() {
	close(s.stopped)
	timer := time.NewTimer(lastEventWait)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	bus.Lock()
	defer bus.Unlock()
	bus.senders = slices.DeleteFunc(bus.senders, func(other *Sender) bool { return other == s })
	s.sent()
	if len(bus.senders) > 0 {
		return
	}
	for _, e := range bus.waiting {
		metrics.EventsDroppedTotal.WithLabelValues(e.Name).Inc()
	}
	bus.waiting = nil
}

// sent notes that no other sender has to wait for this one any more. bus must be locked.
func (s *Sender) sent() {
	if bus.sending == s {
		bus.sending = nil
	}
	change()
}

func (s *Sender) run() {
	defer close(s.done)
	select {
	case <-s.started:
	case <-s.stopped:
		return
	}
	for {
		e, ok := s.next()
		if !ok {
			return
		}
		s.send(e)
		bus.Lock()
		s.sent()
		bus.Unlock()
	}
}

// next returns the next event, once it is this sender's turn. It reports false after Stop.
func (s *Sender) next() (e Event, ok bool) {
	for {
		select {
		case <-s.stopped:
			return e, false
		default:
		}
		bus.Lock()
		if len(bus.waiting) > 0 && bus.sending == nil && bus.senders[len(bus.senders)-1] == s {
			e, bus.waiting, bus.sending = bus.waiting[0], bus.waiting[1:], s
			bus.Unlock()
			return e, true
		}
		if bus.changed == nil {
			bus.changed = make(chan struct{})
		}
		changed := bus.changed
		bus.Unlock()
		select {
		case <-s.stopped:
		case <-changed:
		}
	}
}

// send returns when the handlers of an event have.
func (s *Sender) send(e Event) {
	defer func() {
		if cause := recover(); cause != nil {
			caddy.Log().Named("sliding_window").Error("handler of an event panicked", zap.String("event", e.Name), zap.String("panic", fmt.Sprint(cause)))
		}
	}()
	s.emit(e)
}

// Interface guards.
var _ caddyevents.Handler = (*Sender)(nil)

// Capture captures events for a test until end is called. take returns the captured events.
func Capture() (take func() []Event, end func()) {
	detached := newSender(nil)
	bus.Lock()
	bus.senders = append(bus.senders, detached)
	bus.Unlock()
	take = func() []Event {
		bus.Lock()
		defer bus.Unlock()
		all := bus.waiting
		bus.waiting = nil
		return all
	}
	take()
	return take, func() {
		close(detached.done)
		detached.Stop()
	}
}
