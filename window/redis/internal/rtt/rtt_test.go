package rtt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

const ms = time.Millisecond

// after notes a round trip of a length.
func (t *Estimate) after(d time.Duration) {
	start := time.Now()
	time.Sleep(d)
	t.Note(start)
}

// A trip is the average of the last round trips. The shortest of them is forgotten slowly.
func TestNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trip := New(time.Second, time.Second)
		for i, step := range []struct{ took, get, shortest time.Duration }{
			{8 * ms, 8 * ms, 8 * ms}, {16 * ms, 10 * ms, 8*ms + 8*ms/forgotten}, {2 * ms, 8 * ms, 2 * ms}, {66 * ms, 22*ms + ms/2, 3 * ms},
		} {
			trip.after(step.took)
			if trip.Get() != step.get || trip.Shortest() != step.shortest {
				t.Errorf("round trip %d: %s on average, and %s at least; want %s and %s", i, trip.Get(), trip.Shortest(), step.get, step.shortest)
			}
		}
		trip.Seed(time.Minute)
		if trip.Get() == time.Minute || trip.Shortest() == time.Minute {
			t.Error("a guess takes the place of what is known")
		}
		unknown := New(time.Second, time.Second)
		if unknown.Seed(5 * ms); unknown.Get() != 5*ms || unknown.Shortest() != 5*ms {
			t.Errorf("%s after a guess of 5ms", unknown.Get())
		}
	})
}

// Calls to a far server end early enough for an answer, but keep the deadline for reading it; a close one has the whole time.
func TestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ trip, left, early time.Duration }{
			{100 * ms, time.Second, time.Second},            // a tenth of the timeout: close
			{160 * ms, time.Second, time.Second - 170*ms},   // far: a trip and a sixteenth before the end
			{160 * ms, 150 * ms, ms},                        // for a connection that is there
			{0, time.Second, time.Second}, {160 * ms, 0, 0}, // not known; no deadline
		} {
			trip := New(time.Second, time.Second)
			trip.Seed(c.trip)
			ctx, end := t.Context(), time.Now().Add(c.left)
			if c.left > 0 {
				var cancel func()
				ctx, cancel = context.WithDeadline(ctx, end)
				defer cancel()
			}
			early, done := trip.InTime(ctx)
			defer done()
			start := time.Now()
			if c.left == 0 {
				if early != ctx {
					t.Errorf("%+v: another context", c)
				}
				continue
			}
			if deadline, _ := early.Deadline(); !deadline.Equal(end) {
				t.Errorf("%+v: an answer may come until %s before the end", c, end.Sub(deadline))
			}
			<-early.Done()
			if waited := time.Since(start); waited != c.early {
				t.Errorf("%+v: ends after %s", c, waited)
			}
		}
	})
}

// Only round trips to a far server are weighed against the time that is left.
func TestHasTimeFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		for _, c := range []struct {
			ctx   context.Context
			trip  time.Duration
			trips int64
			want  bool
		}{{ctx, 200 * ms, 2, true}, {ctx, 200 * ms, 3, false}, {ctx, 100 * ms, 9, true}, {t.Context(), 200 * ms, 9, true}} {
			trip := New(time.Second, time.Second)
			if trip.Seed(c.trip); trip.HasTimeFor(c.ctx, c.trips) != c.want {
				t.Errorf("%d trips of %s: %v, want %v", c.trips, c.trip, !c.want, c.want)
			}
		}
	})
}

// A call that had no connection in time is no failure of a server that has answered others in the meantime.
func TestNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unwritten, lost := error(failure.Unwritten(context.DeadlineExceeded)), error(context.DeadlineExceeded)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		trip := New(time.Second, time.Second)
		call := func(ctx, early context.Context, err error) error {
			c := &wire.Call{Err: err}
			trip.NoConnection(ctx, early, []*wire.Call{c})
			return c.Err
		}
		for _, step := range []struct {
			what       string
			before     func()
			ctx, early context.Context
			err        error
			busy       bool
		}{
			{"nothing has been answered", func() {}, t.Context(), ended, unwritten, false},
			{"the server answers others", func() { trip.after(ms) }, t.Context(), ended, unwritten, true},
			{"the caller's time is over, too", func() {}, ended, ended, unwritten, false},
			{"there would have been time", func() {}, t.Context(), t.Context(), unwritten, false},
			{"another reason", func() {}, t.Context(), ended, failure.Unwritten(failure.ErrReply), false},
			{"an answer was lost", func() { time.Sleep(ms) }, t.Context(), ended, lost, false},
			{"after that", func() {}, t.Context(), ended, unwritten, false},
			{"another answer", func() { trip.after(2 * ms) }, t.Context(), ended, unwritten, true},
			{"a long time after it", func() { time.Sleep(time.Second + ms) }, t.Context(), ended, unwritten, false},
		} {
			step.before()
			if got := call(step.ctx, step.early, step.err); errors.Is(got, window.ErrBusy) != step.busy || !step.busy && got != step.err { //nolint:errorlint // the very same
				t.Errorf("%s: %v becomes %v", step.what, step.err, got)
			}
		}
	})
}
