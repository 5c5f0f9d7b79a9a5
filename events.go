package slidingwindow

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"
)

// Events that handlers of Caddy's events app hear of. A request by itself causes no event.
const (
	eventAlert    = "sliding_window_alert"
	eventResolved = "sliding_window_alert_resolved"
	eventAway     = "sliding_window_store_away"
	eventBack     = "sliding_window_store_back"
	eventOverride = "sliding_window_override_changed"
	eventEnforce  = "sliding_window_enforce_changed"
	eventMemory   = "sliding_window_memory_high"
)

// eventNames are all of them.
var eventNames = []string{eventAlert, eventResolved, eventAway, eventBack, eventOverride, eventEnforce, eventMemory}

const (
	maxEvents     = 64          // that wait
	lastEventWait = time.Second // for the event under way, when Caddy stops or reloads
)

type event struct {
	name string
	data map[string]any
}

// Events wait here for a sender. While no configuration runs there are no senders, and nothing waits.
var (
	waitingEvents = make(chan event, maxEvents)
	senders       atomic.Int64
)

// emit has the handlers of the running configuration hear of an event, later and one event after
// the other. It never waits: an event for which there is no room is dropped, and counted. data must
// not be changed after that.
func emit(name string, data map[string]any) {
	if senders.Load() == 0 {
		return
	}
	select {
	case waitingEvents <- event{name, data}:
	default:
		eventsDroppedTotal.WithLabelValues(name).Inc()
	}
}

// sender hands events to the handlers of one configuration, from App.Start to App.Stop. Caddy runs
// handlers inline, so that a slow one delays the events that follow, and nothing else.
type sender struct {
	ctx     caddy.Context // of the app; events need one that lives, with a module
	to      *caddyevents.App
	started chan struct{} // closed when all apps have started; see Handle
	once    sync.Once
	stopped chan struct{} // closed by stop
	done    chan struct{} // closed when no event is under way any more
}

// newSender returns a sender for the configuration of ctx, which is being provisioned.
func newSender(ctx caddy.Context) (*sender, error) {
	value, err := ctx.App("events")
	if err != nil {
		return nil, err
	}
	for _, name := range eventNames {
		eventsDroppedTotal.WithLabelValues(name) // so that it is there before the first is dropped
	}
	s := &sender{ctx: ctx, to: value.(*caddyevents.App), started: make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{})}
	return s, s.to.On("started", s)
}

// Handle implements caddyevents.Handler. Caddy starts its apps in any order, and before the events
// app has started there must be no event of others.
func (s *sender) Handle(context.Context, caddy.Event) error {
	s.once.Do(func() { close(s.started) })
	return nil
}

func (s *sender) start() {
	senders.Add(1)
	go s.run()
}

// stop returns when the event under way is over, or after lastEventWait.
func (s *sender) stop() {
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
			eventsDroppedTotal.WithLabelValues(e.name).Inc()
		default:
			return
		}
	}
}

func (s *sender) run() {
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
func (s *sender) send(e event) {
	defer func() {
		if cause := recover(); cause != nil {
			caddy.Log().Named("sliding_window").Error("handler of an event panicked", zap.String("event", e.name), zap.String("panic", fmt.Sprint(cause)))
		}
	}()
	ctx := s.ctx // handlers get a replacer that knows this event only
	ctx.Context = context.WithValue(ctx.Context, caddy.ReplacerCtxKey, caddy.NewReplacer())
	s.to.Emit(ctx, e.name, e.data)
}

// Interface guards.
var _ caddyevents.Handler = (*sender)(nil)
