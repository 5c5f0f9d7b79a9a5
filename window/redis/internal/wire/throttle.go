package wire

import (
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
)

// Native returns how a request uses CL.THROTTLE.
func Native(charges []window.Charge) window.Native {
	if a, ok := charges[0].Algorithm.(window.GCRA); ok {
		return a.Native
	}
	return window.NativeOff
}

// Throttle writes a call of CL.THROTTLE: key, units at once less one, limit,
// window in seconds, quantity. A cost above the burst is not even mentioned: the
// command is not safe from overflow.
func (w *Writer) Throttle(op Op, charges []window.Charge) *Call {
	c, p := &charges[0], charges[0].Policies[0]
	burst, quantity := p.AtOnce(c.Algorithm), c.Cost
	if op == Peek || c.Cost > burst {
		quantity = 0
	}
	key := string(w.Names[0].AppendNative(nil, c))
	args := []any{"cl.throttle", key, burst - 1, p.Limit, int64(p.Window / time.Second), quantity}
	return &Call{Key: key, args: args, Op: op, Requests: [][]window.Charge{charges}, Names: w.Names, Native: true}
}

// ThrottleReset writes a reset of what CL.THROTTLE has counted, under one name.
func (w *Writer) ThrottleReset(names []naming.Naming, charge window.Charge) *Call {
	c := w.Script(names, Reset, [][]window.Charge{{charge}})
	c.Key = string(names[0].AppendNative(nil, &charge))
	c.args[3] = c.Key
	return c
}

// nativeDecision returns what CL.THROTTLE has answered: limited (0 or 1), limit,
// remaining, retry after and reset after, in seconds.
func (c *Call) nativeDecision() ([]window.Decision, error) {
	if len(c.Reply) != 5 {
		return nil, failure.OwnError(fmt.Sprintf("unexpected reply of CL.THROTTLE: %d integers, want 5", len(c.Reply)))
	}
	charge := &c.Requests[0][0]
	p := charge.Policies[0]
	burst := p.AtOnce(charge.Algorithm)
	d := window.Decision{
		Limit:      burst,
		Remaining:  min(max(0, c.Reply[2]), burst),
		ResetAfter: times(max(0, c.Reply[4]), time.Second),
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
	case c.Op == Peek && charge.Cost > d.Remaining:
		d.RetryAfter = room(charge.Cost)
	case c.Op == Take && charge.Cost > 0 && c.Reply[0] != 0:
		d.RetryAfter = times(max(1, c.Reply[3]), time.Second)
	default:
		d.Allowed = true
	}
	if !d.Allowed {
		d.EffectiveWindow = min(d.EffectiveWindow, d.RetryAfter)
	}
	return []window.Decision{d}, nil
}
