package main

import (
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

var inMemory = table{
	name:    "memory",
	title:   "Decisions in this process, 2 goroutines, 100,000 keys",
	metrics: []string{"decisions/s", "CPU, ns/decision"},
	about:   "Limit 300 in 1 s: everything passes.",
	ratios: []report.Ratio{
		{Of: "zset", To: "caddy-ratelimit", Aim: report.AtLeast(3)},
		{Of: "log", To: "caddy-ratelimit"},
		{Of: "slices", To: "caddy-ratelimit"},
		{Of: "gcra", To: "caddy-ratelimit"},
	},
	prepare: func(b *bench) ([]variant, error) {
		perKey := limit{300, time.Second}
		return b.inProcess(perKey, func(open func() (limiter, error)) ([]float64, error) {
			l, err := open()
			if err != nil {
				return nil, err
			}
			if err := once(2, keys, l); err != nil {
				return nil, err
			}
			// From then on units leave their windows as fast as others come.
			if _, err := during(max(b.warmUp(), perKey.window), 2, keys, l); err != nil {
				return nil, err
			}
			cpu := ownCPU()
			done, err := during(b.length, 2, keys, l)
			cpu = ownCPU() - cpu
			return []float64{done.perSecond(), 1e3 * cpu / float64(done.decisions)}, err
		})
	},
}

// inProcess compares stores in this process. Each is opened for its turn and gone
// after it: the garbage collector would have to look through it in the turns of the others.
func (b *bench) inProcess(l limit, measure func(open func() (limiter, error)) ([]float64, error)) ([]variant, error) {
	var variants []variant
	add := func(name string, open func() (limiter, error)) {
		variants = append(variants, variant{name, func() ([]float64, error) {
			defer b.clean()
			return measure(open)
		}})
	}
	for _, w := range ways {
		add(w.name, func() (limiter, error) { return w.of(b.newMemory(), l), nil })
	}
	for _, p := range memoryPeers {
		add(p.name, func() (limiter, error) { return p.open(l) })
	}
	return variants, nil
}

// newMemory returns a store that is large enough, until its turn is done.
func (b *bench) newMemory() window.Store {
	store := memory.New(memory.Options{MaxKeys: 10_000_000})
	b.atEnd(func() { _ = store.Close() })
	return store
}
