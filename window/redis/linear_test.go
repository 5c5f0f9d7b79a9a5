package redis_test

import (
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestLinearizable asks two stores on one server, whose connections are cut, which hangs, has
// no memory, no replica or no permission, and forgets its scripts.
func TestLinearizable(t *testing.T) {
	own, p, clock := redistest.Start(t), startProxy(t), windowtest.NewClock()
	p.target.Store(&own.Addr)
	admin := own.Client(t)
	do := func(args ...any) {
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	between := func(before, after []any) windowtest.Fault {
		return func(hold func()) {
			do(before...)
			hold()
			do(after...)
		}
	}
	faults := []windowtest.Fault{
		func(hold func()) { // replies are lost
			p.cut.Store(true)
			hold()
			p.cut.Store(false)
		},
		func(hold func()) { // the server hangs, and runs later what it was sent
			own.Stop()
			hold()
			own.Cont()
		},
		func(func()) { p.hangUp() },
		func(func()) { do("SCRIPT", "FLUSH") },
		between([]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"}),
		between([]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"}),
		between([]any{"ACL", "SETUSER", "default", "-evalsha"}, []any{"ACL", "SETUSER", "default", "+evalsha"}),
		between([]any{"ACL", "SETUSER", "default", "-@write"}, []any{"ACL", "SETUSER", "default", "+@all"}),
	}
	o := redis.Options{Addresses: []string{p.addr}, Now: clock.Now, Prefix: "linear", Timeout: 200 * time.Millisecond}
	one, other := redis.AskAlways(newStore(t, o)), redis.AskAlways(newStore(t, o))
	warm(t, one, "one")
	warm(t, other, "other")
	settled := func() {
		eventually(t, patience, "no call under way", func() bool { return inFlight(one)+inFlight(other) == 0 })
		for _, s := range []window.Store{one, other} { // connections that were cut are made again
			eventually(t, patience, "a decision", func() bool {
				_, err := s.Peek(t.Context(), []window.Charge{charge("warm", "settled", 10, time.Hour)})
				return err == nil
			})
		}
	}
	windowtest.Linearizable(t, clock, faults, settled, one, other)
}
