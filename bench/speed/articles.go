package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// article is the sliding window as it is often written down: a member of a sorted
// set for each request, and the text of the script sent with every call.
const article = `
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`

const articleName = "ZSET script by EVAL"

var articles = table{
	name:    "articles",
	title:   "1,000,000 calls, 500 callers, 500,000 keys, limit 2",
	metrics: []string{"decisions/s", "MB in Redis afterwards"},
	about:   "Limit 2 in 10 m.",
	counted: true,
	ratios: []report.Ratio{
		{Of: "zset", To: articleName, Aim: report.AtLeast(2)},
		{Of: "log", To: articleName, Aim: report.AtLeast(2)},
		{Of: "gcra", To: articleName, Aim: report.AtLeast(2)},
		{Of: "gcra, pack", To: articleName, Aim: report.AtLeast(2)},
		{Of: "gcra, pack", To: articleName, Metric: 1, Aim: report.AtMost(1.0 / 3)},
		{Of: "zset", To: articleName, Metric: 1},
		{Of: "gcra", To: articleName, Metric: 1},
	},
	prepare: func(b *bench) ([]variant, error) {
		const callers = 500
		calls, keys := b.scale(1_000_000), b.scale(500_000)
		s, err := b.newServer()
		if err != nil {
			return nil, err
		}
		l := limit{2, 10 * time.Minute}
		all := []limiter{b.article(s, l, callers)}
		store := b.newStore(s)
		for _, w := range []way{byZset, byLog, byGCRA, packed(keys)} {
			all = append(all, w.of(store, l))
		}
		var variants []variant
		for _, l := range all {
			variants = append(variants, variant{l.name, func() ([]float64, error) {
				if err := s.empty(); err != nil {
					return nil, err
				}
				before, err := s.bytes()
				if err != nil {
					return nil, err
				}
				done, err := times(calls, callers, keys, l)
				if err != nil {
					return nil, err
				}
				after, err := s.bytes()
				return []float64{done.perSecond(), (after - before) / 1e6}, err
			}})
		}
		return variants, nil
	},
}

func (b *bench) article(s *server, l limit, callers int) limiter {
	client := newClient(s.Addr, callers)
	b.atEnd(func() { _ = client.Close() })
	var members atomic.Int64
	return limiter{articleName, func() take {
		return func(ctx context.Context, key string) (bool, error) {
			now := time.Now().UnixMilli()
			member := fmt.Sprintf("%d-%d", now, members.Add(1))
			allowed, err := client.Eval(ctx, article, []string{key}, now, l.window.Milliseconds(), l.max, member).Int()
			return allowed == 1, err
		}
	}}
}
