package breaker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/breaker"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func (s *fakeStore) TakeBatch(ctx context.Context, requests [][]window.Charge) []window.Result {
	return windowtest.TakeEach(ctx, s.Take, requests)
}

// A batch that fails counts as one failure, and an open breaker asks for none of it.
func TestBreakerBatch(t *testing.T) {
	inBubble(t, func(b *guarded) {
		batch := make([][]window.Charge, 5)
		b.store.set(errDown)
		for n := range 5 {
			before, _ := b.store.counts()
			results := b.TakeBatch(b.Context(), batch)
			after, _ := b.store.counts()
			asked := 5
			if n >= 3 {
				asked = 0
			}
			if after-before != asked || len(results) != 5 {
				b.Errorf("batch %d: the store is asked %d times, want %d", n+1, after-before, asked)
			}
			for _, r := range results {
				if !errors.Is(r.Err, window.ErrUnavailable) || errors.Is(r.Err, breaker.ErrOpen) != (asked == 0) {
					b.Errorf("batch %d: %v", n+1, r.Err)
				}
			}
		}
	})
	inBubble(t, func(b *guarded) {
		batch := make([][]window.Charge, 5)
		b.fail(2)
		b.store.set(nil)
		for _, r := range b.TakeBatch(b.Context(), batch) {
			if r.Err != nil || len(r.Decisions) != 1 {
				b.Errorf("got %v, %v", r.Decisions, r.Err)
			}
		}
		b.fail(2)
		b.wantOpen(false)
	})
}
