package redis

import (
	"context"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// TakeEach takes requests in one round trip, each in a run of the script of its
// own, at a time of its own.
func (s *Store) TakeEach(ctx context.Context, requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	calls := make([]*call, len(requests))
	for i := range requests {
		calls[i] = s.newScriptCall("take", requests[i:i+1])
		calls[i].first = i
	}
	s.decideTogether(ctx, calls, results)
	return results
}
