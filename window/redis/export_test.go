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

// Limits of what travels together, for tests.
const (
	Flights      = flights
	QueueLength  = queueLength
	BatchCharges = batchCharges
)

// Flying returns how many batches are under way to the only server.
func Flying(s *Store) int {
	c := s.commit("")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flying
}

// Waiting returns how many requests wait for the only server.
func Waiting(s *Store) int {
	c := s.commit("")
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}
