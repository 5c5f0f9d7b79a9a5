// Package events tells handlers of Caddy's events app what happened.
package events

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/internal/metrics"
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
)

// eventNames are all of them.
var eventNames = []string{Alert, Resolved, Away, Back, Override, Enforce, Memory}

const (
	maxEvents     = 64          // that wait
	lastEventWait = time.Second // for the event under way, when Caddy stops or reloads
)

type Event struct {
	Name string
	Data map[string]any
}

// Events wait here for a sender. While no configuration runs there are no senders, and nothing waits.
var (
	waitingEvents = make(chan Event, maxEvents)
	senders       atomic.Int64
)

// Emit has the handlers of the running configuration hear of an event, later and one event after
// the other. It never waits: an event for which there is no room is dropped, and counted. data must
// not be changed after that.
func Emit(name string, data map[string]any) {
	if senders.Load() == 0 {
		return
	}
	select {
	case waitingEvents <- Event{name, data}:
	default:
		metrics.EventsDroppedTotal.WithLabelValues(name).Inc()
	}
}

// Sender hands events to the handlers of one configuration, from App.Start to App.Stop. Caddy runs
// handlers inline, so that a slow one delays the events that follow, and nothing else.
type Sender struct {
	ctx     caddy.Context // of the app; events need one that lives, with a module
	to      *caddyevents.App
	started chan struct{} // closed when all apps have started; see Handle
	once    sync.Once
	stopped chan struct{} // closed by stop
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
	s := &Sender{ctx: ctx, to: value.(*caddyevents.App), started: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{})}
	return s, s.to.On("started", s)
}

// Handle implements caddyevents.Handler. Caddy starts its apps in any order, and before the events
// app has started there must be no event of others.
func (s *Sender) Handle(context.Context, caddy.Event) error {
	s.once.Do(func() { close(s.started) })
	return nil
}

func (s *Sender) Start() {
	senders.Add(1)
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
	if senders.Add(-1) > 0 {
		return
	}
	for {
		select {
		case e := <-waitingEvents:
			metrics.EventsDroppedTotal.WithLabelValues(e.Name).Inc()
		default:
			return
		}
	}
}

func (s *Sender) run() {
	defer close(s.done)
	select {
	case <-s.started:
	case <-s.stopped:
		return
	}
	for {
		select {
		case <-s.stopped:
			return
		default:
		}
		select {
		case <-s.stopped:
			return
		case e := <-waitingEvents:
			s.send(e)
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
	ctx := s.ctx // handlers get a replacer that knows this event only
	ctx.Context = context.WithValue(ctx.Context, caddy.ReplacerCtxKey, caddy.NewReplacer())
	s.to.Emit(ctx, e.Name, e.Data)
}

// Interface guards.
var _ caddyevents.Handler = (*Sender)(nil)

// Hear has events wait for a test, until end, in place of a sender. take returns those that wait.
func Hear() (take func() []Event, end func()) {
	senders.Add(1)
	take = func() (all []Event) {
		for {
			select {
			case e := <-waitingEvents:
				all = append(all, e)
			default:
				return all
			}
		}
	}
	take()
	return take, func() {
		senders.Add(-1)
		take()
	}
}
