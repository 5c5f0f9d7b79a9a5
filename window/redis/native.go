package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// errNoThrottle takes the place of the server's own words, which hold the key.
var errNoThrottle = ownError("the server has no command CL.THROTTLE, or does not let this user call it: load redis-cell, or take out `native on`")

// native returns how CL.THROTTLE takes part in a request. It counts under one name.
func (s *Store) native(charges []window.Charge) window.Native {
	if len(s.namings) > 1 {
		return window.NativeOff
	}
	return native(charges)
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

// native returns how a request wants CL.THROTTLE to take part.
func native(charges []window.Charge) window.Native {
	if a, ok := charges[0].Algorithm.(window.GCRA); ok {
		return a.Native
	}
	return window.NativeOff
}

// newNativeCall writes a call of CL.THROTTLE: key, units at once less one, limit,
// window in seconds, quantity. A cost above the burst is not even mentioned: the
// command is not safe from overflow.
func (s *Store) newNativeCall(op string, charges []window.Charge) *call {
	c, p := &charges[0], charges[0].Policies[0]
	burst, quantity := window.AtOnce(c.Algorithm, p), c.Cost
	if op == "peek" || c.Cost > burst {
		quantity = 0
	}
	key := string(s.namings[0].appendNative(nil, c))
	args := []any{"cl.throttle", key, burst - 1, p.Limit, int64(p.Window / time.Second), quantity}
	return &call{key: key, args: args, op: op, requests: [][]window.Charge{charges}, namings: s.namings, native: true}
}

// newNativeReset writes a reset of what CL.THROTTLE has counted, under one name.
func (s *Store) newNativeReset(namings []naming, charge window.Charge) *call {
	c := s.newScriptCall(namings, "reset", [][]window.Charge{{charge}})
	c.key = string(namings[0].appendNative(nil, &charge))
	c.args[3] = c.key
	return c
}

// leaveNative turns to the script for those calls of which the server is known to
// have no CL.THROTTLE.
func (s *Store) leaveNative(ctx context.Context, calls []*call) {
	for _, c := range calls {
		if !c.native || native(c.requests[0]) == window.NativeOn {
			continue
		}
		if s.lacksThrottle(s.address(ctx, c.key)) {
			s.toScript(c)
		}
	}
}

// toScript makes the call of CL.THROTTLE one of the script.
func (s *Store) toScript(c *call) {
	first := c.first
	*c = *s.newScriptCall(c.namings, c.op, c.requests)
	c.first = first
}

// refusedNative returns the calls whose server has turned out to have no
// CL.THROTTLE, as calls of the script. They have not run yet.
func (s *Store) refusedNative(ctx context.Context, calls []*call) []*call {
	var refused []*call
	for _, c := range calls {
		if !c.native || !lacksCommand(c.err) {
			continue
		}
		if native(c.requests[0]) == window.NativeOn {
			c.err = errNoThrottle
			s.noThrottle.Store(true)
			continue
		}
		s.scriptOnly.Store(s.address(ctx, c.key), s.clock()+scriptFor)
		s.toScript(c)
		refused = append(refused, c)
	}
	return refused
}

// pingNativeCharge looks at what CL.THROTTLE counts.
var pingNativeCharge = window.Charge{
	Key:       "ping",
	Policies:  []window.Policy{{Limit: 1, Window: time.Second}},
	Algorithm: window.GCRA{Native: window.NativeOn},
}

// pingNative reports whether a request that insists on CL.THROTTLE would be
// decided.
func (s *Store) pingNative(ctx context.Context) error {
	err := s.decide(ctx, "take", [][]window.Charge{{pingNativeCharge}})[0].Err
	if err == nil {
		s.noThrottle.Store(false)
	}
	return err
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

// address returns that of the node of a Cluster that holds key, and "" for a
// single server.
func (s *Store) address(ctx context.Context, key string) string {
	if c, ok := s.client.(*goredis.ClusterClient); ok {
		if node, err := c.MasterForKey(ctx, key); err == nil {
			if !s.placed.Load() {
				s.placed.Store(true)
			}
			return node.Options().Addr
		}
	}
	return ""
}

// nativeDecision returns what CL.THROTTLE has answered: limited (0 or 1), limit,
// remaining, retry after and reset after, in seconds.
func (c *call) nativeDecision() ([]window.Decision, error) {
	if len(c.reply) != 5 {
		return nil, ownError(fmt.Sprintf("unexpected reply of CL.THROTTLE: %d integers, want 5", len(c.reply)))
	}
	charge := &c.requests[0][0]
	p := charge.Policies[0]
	burst := window.AtOnce(charge.Algorithm, p)
	d := window.Decision{
		Limit:      burst,
		Remaining:  min(max(0, c.reply[2]), burst),
		ResetAfter: times(max(0, c.reply[4]), time.Second),
	}
	// room is when n units fit, as far as whole seconds tell.
	room := func(n int64) time.Duration {
		emptied := time.Duration((burst-n)*p.Window.Milliseconds()/p.Limit) * time.Millisecond
		return max(time.Millisecond, d.ResetAfter-emptied)
	}
	d.EffectiveWindow = room(d.Remaining + 1)
	switch {
	case charge.Cost > burst:
		d.RetryAfter = window.Never
	case c.op == "peek" && charge.Cost > d.Remaining:
		d.RetryAfter = room(charge.Cost)
	case c.op == "take" && charge.Cost > 0 && c.reply[0] != 0:
		d.RetryAfter = times(max(1, c.reply[3]), time.Second)
	default:
		d.Allowed = true
	}
	if !d.Allowed {
		d.EffectiveWindow = min(d.EffectiveWindow, d.RetryAfter)
	}
	return []window.Decision{d}, nil
}
