package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// native returns how CL.THROTTLE takes part in a request. It counts under one name.
func (s *Store) native(charges []window.Charge) window.Native {
	if len(s.namings) > 1 {
		return window.NativeOff
	}
	return wire.Native(charges)
}

// throttles reports whether CL.THROTTLE is to decide on a request to the only server:
// not where it is known to be missing, so that such requests go together.
func (s *Store) throttles(charges []window.Charge) bool {
	switch s.native(charges) {
	case window.NativeOff:
		return false
	case window.NativeAuto:
		return !s.lacksThrottle("")
	}
	return true
}

// scriptFor is how long a server counts as one without CL.THROTTLE. It may get it, and
// all who share it have to count alike.
const scriptFor = time.Minute

// lacksThrottle reports whether a server was without CL.THROTTLE a short while ago.
func (s *Store) lacksThrottle(address string) bool {
	until, ok := s.scriptOnly.Load(address)
	return ok && s.clock() < until.(time.Duration)
}

// leaveNative turns to the script for those calls of which the server is known to
// have no CL.THROTTLE.
func (s *Store) leaveNative(ctx context.Context, calls []*wire.Call) {
	for _, c := range calls {
		if !c.Native || wire.Native(c.Requests[0]) == window.NativeOn {
			continue
		}
		if s.lacksThrottle(s.address(ctx, c.Key)) {
			s.toScript(c)
		}
	}
}

// toScript makes the call of CL.THROTTLE one of the script.
func (s *Store) toScript(c *wire.Call) {
	first := c.First
	s.writer.Write(c, c.Op, c.Requests)
	c.First = first
}

// refusedNative returns the calls whose server has turned out to have no
// CL.THROTTLE, as calls of the script. They have not run yet.
func (s *Store) refusedNative(ctx context.Context, calls []*wire.Call) []*wire.Call {
	var refused []*wire.Call
	for _, c := range calls {
		if !c.Native || !lacksCommand(c.Err) {
			continue
		}
		if wire.Native(c.Requests[0]) == window.NativeOn {
			c.Err = failure.ErrNoThrottle
			s.noThrottle.Store(true)
			continue
		}
		s.scriptOnly.Store(s.address(ctx, c.Key), s.clock()+scriptFor)
		s.toScript(c)
		refused = append(refused, c)
	}
	return refused
}

// lacksCommand reports whether a server knows no such command, or keeps it from
// this user.
func lacksCommand(err error) bool {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.ToLower(reply.Error())
	return strings.HasPrefix(text, "err unknown command") || strings.HasPrefix(text, "noperm ") && strings.Contains(text, "cl.throttle")
}
