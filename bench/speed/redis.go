package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

const (
	callers = 128
	keys    = 100_000
)

var onRedis = table{
	name:    "redis",
	title:   "Decisions on one Redis, 128 goroutines, 100,000 keys",
	metrics: []string{"decisions/s", "Redis, µs/decision", "client, µs/decision"},
	about:   "Limit 100 in 1 m.",
	ratios: []report.Ratio{
		{Of: "zset", To: "redis_rate", Aim: report.AtLeast(2.5)},
		{Of: "log", To: "redis_rate", Aim: report.AtLeast(3.5)},
		{Of: "zset", To: "rueidislimiter", Aim: report.AtLeast(1.2)},
		{Of: "log", To: "rueidislimiter", Aim: report.AtLeast(1.7)},
		{Of: "gcra", To: "redis_rate"},
		{Of: "gcra", To: "rueidislimiter"},
		{Of: "gcra, pack", To: "redis_rate"},
	},
	prepare: func(b *bench) ([]variant, error) {
		return b.libraries(limit{100, time.Minute}, callers, keys, and(packed(keys)))
	},
}

var onHotKey = table{
	name:    "hotkey",
	title:   "Decisions on one Redis, 128 goroutines, one key",
	metrics: onRedis.metrics,
	about:   "Limit 1,000,000,000 in 4 s: everything passes.",
	ratios: []report.Ratio{
		{Of: byLeasedZset.name, To: "redis_rate", Aim: report.AtLeast(20)},
		{Of: byLeasedLog.name, To: "redis_rate", Aim: report.AtLeast(20)},
		{Of: "zset", To: "redis_rate"},
		{Of: "log", To: "redis_rate"},
		{Of: "zset", To: "rueidislimiter"},
		{Of: "log", To: "rueidislimiter"},
	},
	prepare: func(b *bench) ([]variant, error) {
		return b.libraries(limit{1_000_000_000, 4 * time.Second}, callers, 1, and(byLeasedZset, byLeasedLog))
	},
}

// shards is what a decision costs in a Cluster, where it is a call by itself. The
// one node here has all the slots.
var shards = table{
	name:    "shards",
	title:   "Decisions on a Cluster of one node, 128 goroutines, 100,000 keys",
	metrics: append(onRedis.metrics[:3:3], "a shard at most, decisions/s"),
	about:   "Limit 100 in 1 m. At most: what the server's own processor time for a decision leaves room for.",
	prepare: func(b *bench) ([]variant, error) {
		s, err := b.newServer("--cluster-enabled", "yes")
		if err != nil {
			return nil, err
		}
		if err := s.OwnAllSlots(context.Background()); err != nil {
			return nil, err
		}
		store := redis.New(redis.Options{Addresses: []string{s.Addr}, Cluster: true, Timeout: timeout})
		b.atEnd(func() { _ = store.Close() })
		l := limit{100, time.Minute}
		var variants []variant
		for _, w := range ways {
			variants = append(variants, variant{w.name, func() ([]float64, error) {
				if err := s.empty(); err != nil {
					return nil, err
				}
				values, err := b.onServer(s, callers, keys, w.of(store, l))
				if err != nil {
					return nil, err
				}
				return append(values, 1e6/values[1]), nil
			}})
		}
		return variants, nil
	},
}

// newStore returns a store on the server, until the table is done.
func (b *bench) newStore(s *server) window.Store {
	store := redis.New(redis.Options{Addresses: []string{s.Addr}, Timeout: timeout})
	b.atEnd(func() { _ = store.Close() })
	return store
}

// libraries compares ways with the other limiters on one server, which each finds
// empty.
func (b *bench) libraries(l limit, callers, keys int, ways []way) ([]variant, error) {
	s, err := b.newServer()
	if err != nil {
		return nil, err
	}
	store := b.newStore(s)
	var all []limiter
	for _, w := range ways {
		all = append(all, w.of(store, l))
	}
	peers, err := b.redisPeers(s, l, callers, keys == 1)
	if err != nil {
		return nil, err
	}
	var variants []variant
	for _, l := range append(all, peers...) {
		variants = append(variants, variant{l.name, func() ([]float64, error) {
			if err := s.empty(); err != nil {
				return nil, err
			}
			return b.onServer(s, callers, keys, l)
		}})
	}
	return variants, nil
}

// onServer returns decisions per second, and the processor time of the server and
// of this process per decision.
func (b *bench) onServer(s *server, callers, keys int, l limiter) ([]float64, error) {
	if _, err := during(b.warmUp(), callers, keys, l); err != nil {
		return nil, err
	}
	server, err := s.cpu()
	if err != nil {
		return nil, err
	}
	own := ownCPU()
	done, err := during(b.length, callers, keys, l)
	if err != nil {
		return nil, err
	}
	own = ownCPU() - own
	after, err := s.cpu()
	if err != nil {
		return nil, err
	}
	n := float64(done.decisions)
	return []float64{done.perSecond(), (after - server) / n, own / n}, nil
}

// manyKeys and manyPackedKeys are how the number of keys bears on decisions: of gcra,
// of which a key stays as large as it is.
var (
	manyKeys       = byKeys("keys", "Decisions on one Redis, by the number of keys in it", func(int) way { return byGCRA })
	manyPackedKeys = byKeys("packedkeys", "Decisions on one Redis, by the number of keys packed in it", packed)
)

func byKeys(name, title string, in func(keys int) way) table {
	return table{
		name:    name,
		title:   title,
		metrics: []string{"decisions/s", "Redis, µs/decision"},
		about:   "`" + in(1).name + "`, limit 1,000,000 in 24 h, 128 goroutines; a server for each number of keys, filled beforehand.",
		ratios:  []report.Ratio{{Of: "5,000,000", To: "1,000", Aim: report.AtLeast(0.7)}},
		lines:   true,
		prepare: func(b *bench) ([]variant, error) {
			var variants []variant
			for _, n := range []int{1_000, 10_000, 100_000, 1_000_000, 5_000_000} {
				s, err := b.newServer()
				if err != nil {
					return nil, err
				}
				count := n
				if n > 1_000 {
					count = b.scale(n)
				}
				l, store, w := limit{1_000_000, 24 * time.Hour}, b.newStore(s), in(count)
				first := w.charge(l)
				first.Cost = 100_000 // leaks within hours: until then no key expires
				if err := fill(store, first, count); err != nil {
					return nil, err
				}
				variants = append(variants, variant{report.Number(float64(n)), func() ([]float64, error) {
					values, err := b.onServer(s, callers, count, w.of(store, l))
					if err != nil {
						return nil, err
					}
					return values[:2], nil
				}})
			}
			return variants, nil
		},
	}
}

// fill spends a unit on each key.
func fill(store window.Store, charge window.Charge, keys int) error {
	const most = 500
	batch := make([][]window.Charge, 0, most)
	for i := range keys {
		charge.Key = keyName(i)
		batch = append(batch, []window.Charge{charge})
		if len(batch) < most && i < keys-1 {
			continue
		}
		for _, r := range store.TakeBatch(context.Background(), batch) {
			if r.Err != nil {
				return fmt.Errorf("before key %d: %w", i+1, r.Err)
			}
		}
		batch = batch[:0]
	}
	return nil
}
