package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestAskedAgain holds that a request is sent again, once and alone, on which the script failed beside another.
func TestAskedAgain(t *testing.T) {
	const at, limit, length = windowtest.Start, 10, time.Minute
	decided := func(d window.Decision) *window.Decision {
		d.Limit, d.At = limit, at
		return &d
	}
	for _, c := range []struct {
		name   string
		answer []int64
		alone  []int64          // to the request when it is sent again, if it is
		want   *window.Decision // nil: an error
	}{
		{"failed, then decided", []int64{-1}, []int64{at, 8}, decided(window.Decision{Allowed: true, Remaining: 8, ResetAfter: length, EffectiveWindow: length})},
		{"failed twice", []int64{-1}, []int64{at, -1}, nil},
	} {
		asked := 0
		s := newStore(t, redis.Options{Addresses: []string{fakeServer(t, func([]string) string {
			if asked++; asked == 1 {
				return integers(append([]int64{at, 5}, c.answer...)...)
			}
			return integers(c.alone...)
		})}})
		one, other := charge("zone", "one", limit, length), charge("zone", "other", limit, length)
		got := s.TakeBatch(t.Context(), [][]window.Charge{{one}, {other}})[1]
		switch {
		case c.want == nil && (!errors.Is(got.Err, window.ErrUnavailable) || got.Decisions != nil):
			t.Errorf("%s: %+v, want an error", c.name, got)
		case c.want != nil && (got.Err != nil || len(got.Decisions) != 1 || got.Decisions[0] != *c.want):
			t.Errorf("%s: %+v, want %+v", c.name, got, *c.want)
		}
		if want := 1 + min(1, len(c.alone)); asked != want {
			t.Errorf("%s: asked %d times, want %d", c.name, asked, want)
		}
	}
}
