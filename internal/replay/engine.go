package replay

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// engine takes the requests of a log through a plan, one after the other, in the order of their start.
type engine struct {
	plan   *plan
	server string // that gets all requests; empty: the log tells
	// decided is told what a zone decided on the request of a line, once it is answered. Its error ends the run.
	decided func(l *accesslog.Line, o request.Outcome) error

	now    int64 // Unix nanoseconds
	open   answers
	idle   []*coroutine // that have served a request
	last   int64        // number of the last request
	routed map[route]*server

	unread int64 // requests that no server could have got
	full   bool  // a store reached the keys that it may keep
}

// route is what tells to which server a request went.
type route struct {
	logger, host string
	tls          bool
}

// answers are those that have not ended, the one that ends first on top. It implements heap.Interface.
type answers []openAnswer

// openAnswer is an answer that ends at a time.
type openAnswer struct {
	end, number int64
	*coroutine
}

func (a answers) Len() int { return len(a) }
func (a answers) Less(i, j int) bool {
	return a[i].end < a[j].end || a[i].end == a[j].end && a[i].number < a[j].number
}
func (a answers) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *answers) Push(x any)   { *a = append(*a, x.(openAnswer)) }
func (a *answers) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = openAnswer{}
	*a = (*a)[:last]
	return x
}

// take decides on the request of a line. Lines come in the order of their start; one that comes later is decided on at
// the time of the one before. An error says what the log cannot tell.
func (e *engine) take(l *accesslog.Line) error {
	if err := e.endUntil(l.Start); err != nil {
		return err
	}
	e.setClock(max(e.now, l.Start))
	server, err := e.serverOf(l)
	if err != nil {
		return fmt.Errorf("%s:%d: %w", l.Source, l.Number, err)
	}
	if !server.zones {
		return nil
	}
	r, _ := l.Value.(*http.Request)
	if r == nil {
		if r = newRequest(l); r == nil {
			e.unread++
			return nil
		}
	}
	if err := e.host(r, l, server); err != nil {
		return err
	}
	s := &step{Context: context.Background(), engine: e, line: l, server: server}
	r = r.WithContext(s)
	e.last++
	if !e.plan.holds {
		server.ServeHTTP(&writer{make(http.Header)}, r)
		return e.ended(s)
	}
	return e.hold(s, r)
}

// hold takes a request whose answer takes its time.
func (e *engine) hold(s *step, r *http.Request) error {
	w := e.coroutine()
	w.step, w.request = s, r
	if held, _ := w.resume(); held {
		heap.Push(&e.open, openAnswer{max(s.line.End, e.now), e.last, w})
	} else {
		e.idle = append(e.idle, w)
	}
	return e.ended(s)
}

// coroutine returns a coroutine that serves a request.
func (e *engine) coroutine() *coroutine {
	if n := len(e.idle); n > 0 {
		w := e.idle[n-1]
		e.idle = e.idle[:n-1]
		return w
	}
	return newCoroutine()
}

// endUntil ends the answers that end until a time.
func (e *engine) endUntil(until int64) error {
	for len(e.open) > 0 && e.open[0].end <= until {
		a := heap.Pop(&e.open).(openAnswer)
		e.setClock(max(e.now, a.end))
		a.resume()
		e.idle = append(e.idle, a.coroutine)
		if a.step.failed != nil {
			return a.step.failed
		}
	}
	return nil
}

// end ends all answers.
func (e *engine) end() error {
	for len(e.open) > 0 {
		if err := e.endUntil(e.open[0].end); err != nil {
			return err
		}
	}
	return nil
}

// close ends the answers that are open, and the plan.
func (e *engine) close() {
	for _, a := range e.open {
		a.step.failed = cmp.Or(a.step.failed, errClosed)
		a.stop()
	}
	for _, c := range e.idle {
		c.stop()
	}
	e.plan.close()
}

var errClosed = errors.New("the replay has ended")

// setClock sets the clock of the stores.
func (e *engine) setClock(now int64) {
	ms := now / int64(time.Millisecond)
	if ms != e.now/int64(time.Millisecond) {
		e.plan.step(ms)
		e.full = e.full || e.plan.full()
	}
	e.now = now
}

// ended tells what was decided.
func (e *engine) ended(s *step) error {
	if s.failed != nil {
		return s.failed
	}
	for o := range request.Outcomes(s.vars) {
		if err := e.decided(s.line, o); err != nil {
			return err
		}
	}
	return nil
}

// serverOf returns the server that got the request of a line.
func (e *engine) serverOf(l *accesslog.Line) (*server, error) {
	if e.server != "" {
		for _, s := range e.plan.servers {
			if s.name == e.server {
				return s, nil
			}
		}
		return nil, fmt.Errorf("--server %s: the configuration has no server of this name", e.server)
	}
	if len(e.plan.servers) == 1 {
		return e.plan.servers[0], nil
	}
	logger, _ := l.Member("logger")
	key := route{logger, l.Host, l.TLS}
	if s := e.routed[key]; s != nil {
		return s, nil
	}
	s, err := e.plan.serverOf(loggerName(logger), l.Host, l.TLS)
	if err == nil && len(e.routed) < 10_000 {
		e.routed[key] = s
	}
	return s, err
}

// host gives a request the host of the site if the log has none.
func (e *engine) host(r *http.Request, l *accesslog.Line, s *server) error {
	if l.Host != "" {
		return nil
	}
	switch len(s.hosts) {
	case 0:
		r.Host = "localhost"
	case 1:
		r.Host = s.hosts[0]
	default:
		if l.Has(accesslog.FieldHost) {
			return nil // HTTP/1.0
		}
		return fmt.Errorf("%s:%d: the log does not tell the host, and the configuration has sites for several; take an access log of Caddy in JSON", l.Source, l.Number)
	}
	return nil
}
