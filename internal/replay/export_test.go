package replay

import (
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// Decide replays a log, and tells each what zones decide.
func Decide(o Options, each func(*accesslog.Line, request.Outcome)) (*Report, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for _, e := range r.engines {
		before := e.decided
		e.decided = func(l *accesslog.Line, o request.Outcome) error {
			each(l, o)
			return before(l, o)
		}
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	return r.report(), nil
}
