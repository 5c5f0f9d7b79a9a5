package redis

import (
	"context"
	"sync"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/batch"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/denials"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/gate"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/leases"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// TakeEach takes requests in one round trip, each in a run of the script of its
// own, at a time of its own.
func (s *Store) TakeEach(ctx context.Context, requests [][]window.Charge) []window.Result {
	results := make([]window.Result, len(requests))
	calls := make([]*wire.Call, len(requests))
	for i := range requests {
		calls[i] = s.writer.Script(s.namings, wire.Take, requests[i:i+1])
		calls[i].First = i
	}
	s.decideTogether(ctx, calls, results)
	return results
}

// Load returns how many batches are under way to the only server, and how many requests wait.
func Load(s *Store) (inFlight, waiting int) { return s.batcher("").Load() }

// NodesOf returns the addresses of servers for which the store has something of its own, each once, and a Batcher of each.
func NodesOf(s *Store) map[string]*batch.Batcher {
	nodes := make(map[string]*batch.Batcher)
	for _, all := range []*sync.Map{&s.scriptOnly, &s.doubts, &s.pingKeys, &s.batchers} {
		all.Range(func(k, v any) bool {
			node, ok := k.(string)
			if !ok {
				node = k.(kind).node
			}
			b, _ := v.(*batch.Batcher)
			nodes[node] = b
			return true
		})
	}
	return nodes
}

// LackThrottle treats a server as one without CL.THROTTLE.
func LackThrottle(s *Store, address string) { s.scriptOnly.Store(address, s.clock()+scriptFor) }

// AskAlways makes the store ask the server about every request, and returns it.
func AskAlways(s *Store) *Store {
	s.denials.Longest = 0
	return s
}

// TellTime has the store remember denials by a clock of its own: that of the process, while
// Options.Now is that of the server.
func TellTime(s *Store, now func() time.Duration) { s.denials.Now = now }

// Denials returns what the store remembers.
func Denials(s *Store) *denials.Memory { return s.denials }

// Leases returns the leases of the store.
func Leases(s *Store) *leases.Leases { return s.leases }

// Gate returns the gate of the store.
func Gate(s *Store) *gate.Gate { return s.gate }

// Doubt makes the store ping the kind of a charge, as if it had failed.
func Doubt(s *Store, c window.Charge) { s.doubt([]window.Charge{c}) }

// Full returns what Engine returns, with all of its methods.
func Full(s *Store) FullStore { return engineStore{s} }

// FullStore is the type of what Engine returns.
type FullStore = engineStore

// ExchangeBans makes a store keep a number of records of bans.
func ExchangeBans(ctx context.Context, s *Store, ask bans.Ask, most int) (bans.Answer, error) {
	return s.exchangeBans(ctx, ask, most)
}
