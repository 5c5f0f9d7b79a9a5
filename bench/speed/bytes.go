package main

import (
	"runtime"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

var memoryBytes = table{
	name:    "memorybytes",
	title:   "Heap per key, one unit each, limit 100",
	metrics: []string{"bytes/key"},
	about:   "1,000,000 keys with names of seven digits; limit 100 in 24 h. What the heap has grown by, after collection.",
	once:    true,
	ratios: []report.Ratio{
		{Of: "zset", Aim: report.AtMost(160)},
		{Of: "gcra"},
		{Of: "zset", To: "caddy-ratelimit"},
	},
	prepare: func(b *bench) ([]variant, error) {
		n := b.scale(1_000_000)
		return b.inProcess(limit{100, 24 * time.Hour}, func(open func() (limiter, error)) ([]float64, error) {
			before := heap()
			l, err := open()
			if err != nil {
				return nil, err
			}
			// The names belong to whoever keeps them.
			i := 0
			if _, err := drive(1, l, func(int) func() (string, bool) {
				return func() (string, bool) { i++; return strconv.Itoa(1_000_000 + i), i <= n }
			}); err != nil {
				return nil, err
			}
			after := heap()
			runtime.KeepAlive(l)
			return []float64{(after - before) / float64(n)}, nil
		})
	},
}

func heap() float64 {
	runtime.GC()
	runtime.GC() // what finalizers let go of, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

var redisBytes = table{
	name:    "redisbytes",
	title:   "Redis memory per key, one unit each, limit 100",
	metrics: []string{"bytes/key"},
	about:   "1,000,000 keys with names of seven digits; limit 100 in 24 h. What used_memory has grown by, connections apart.",
	once:    true,
	ratios: []report.Ratio{
		{Of: "gcra, pack", Aim: report.AtMost(40)},
		{Of: "zset", To: articleName},
		{Of: "gcra", To: articleName},
	},
	prepare: func(b *bench) ([]variant, error) {
		keys, l := b.scale(1_000_000), limit{100, 24 * time.Hour}
		s, err := b.newServer()
		if err != nil {
			return nil, err
		}
		var variants []variant
		add := func(name string, fill func() error) {
			variants = append(variants, variant{name, func() ([]float64, error) {
				if err := s.empty(); err != nil {
					return nil, err
				}
				before, err := s.bytes()
				if err != nil {
					return nil, err
				}
				if err := fill(); err != nil {
					return nil, err
				}
				after, err := s.bytes()
				return []float64{(after - before) / float64(keys)}, err
			}})
		}
		store := b.newStore(s)
		for _, w := range and(packed(keys)) {
			add(w.name, func() error { return fill(store, w.charge(l), keys) })
		}
		peers, err := b.redisPeers(s, l, callers, false)
		if err != nil {
			return nil, err
		}
		for _, p := range append(peers, b.article(s, l, callers)) {
			add(p.name, func() error { return once(callers, keys, p) })
		}
		return variants, nil
	},
}
