package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestAnswers holds what the store makes of each answer that the script can give to
// one of two requests.
func TestAnswers(t *testing.T) {
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
		{"short", []int64{7}, nil, decided(window.Decision{Allowed: true, Remaining: 7, ResetAfter: length, EffectiveWindow: length})},
		{"with times", []int64{-4, 7, 3_000, 2_000}, nil, decided(window.Decision{Allowed: true, Remaining: 7, ResetAfter: 3 * time.Second, EffectiveWindow: 2 * time.Second})},
		{"in full", []int64{-5, 0, 0, 1_000, 3_000, 2_000}, nil, decided(window.Decision{RetryAfter: time.Second, ResetAfter: 3 * time.Second, EffectiveWindow: 2 * time.Second})},
		{"failed, then decided", []int64{-1}, []int64{at, 8}, decided(window.Decision{Allowed: true, Remaining: 8, ResetAfter: length, EffectiveWindow: length})},
		{"failed twice", []int64{-1}, []int64{at, -1}, nil},
		{"may be charged", []int64{-2}, nil, nil},
		{"forbidden", []int64{-3}, nil, nil},
		{"unknown", []int64{-6}, nil, nil},
		{"more than the limit", []int64{11}, nil, nil},
		{"part of the times", []int64{-4, 7}, nil, nil},
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
