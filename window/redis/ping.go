package redis

import (
	"context"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Ping implements engine.Pinger. It spends on counters of its own, because a server
// that answers PING may still refuse to write: on one of each kind with which
// requests failed, because each takes other commands, and one may not be allowed.
func (s *Store) Ping(ctx context.Context) error {
	var charges []window.Charge
	s.doubts.Range(func(_, c any) bool {
		charges = append(charges, c.(window.Charge))
		return true
	})
	if charges == nil {
		charges = []window.Charge{pingCharge(window.Zset{}, 0)}
	}
	if s.elsewhere.Load() { // which no node of a Cluster decides on together
		another := pingCharge(window.Zset{}, 0)
		another.Key = "another"
		charges = append(charges, another)
	}
	var err error
	if s.cluster {
		err = s.pingEach(ctx, charges)
	} else {
		err = s.decide(ctx, "take", [][]window.Charge{charges})[0].Err
	}
	if err == nil && s.noThrottle.Load() {
		err = s.pingNative(ctx)
	}
	if err == nil {
		s.doubts.Clear()
	}
	return err
}

// pingEach spends on counters one by one in a Cluster, where nothing of it has to be given
// back.
func (s *Store) pingEach(ctx context.Context, charges []window.Charge) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	calls := make([]*call, len(charges))
	for i := range charges {
		calls[i] = s.newCall(s.namings[:1], "take", charges[i:i+1])
	}
	s.run(ctx, calls)
	var results [1]window.Result
	for _, c := range calls {
		if c.answer(results[:]); results[0].Err != nil {
			return s.fail(ctx, results[0].Err)
		}
	}
	return nil
}

// doubt has Ping try what a request failed with.
func (s *Store) doubt(charges []window.Charge) {
	for i := range charges {
		c := &charges[i]
		probe, node := window.FactsOf(c.Algorithm).Probe, s.Parts(charges[i:i+1], nil)[0]
		s.doubts.LoadOrStore(kind{probe, c.Pack > 0, node}, pingCharge(probe, c.Pack))
	}
}

// kind tells counters apart that take other commands, or are on another node of a Cluster.
type kind struct {
	algorithm window.Algorithm
	packed    bool
	node      string
}

func pingCharge(algorithm window.Algorithm, pack int64) window.Charge {
	return window.Charge{
		Key:       "ping",
		Policies:  []window.Policy{{Limit: 1, Window: time.Millisecond}},
		Cost:      1,
		Algorithm: algorithm,
		Pack:      pack,
	}
}
