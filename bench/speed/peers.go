package main

import (
	"context"
	"fmt"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// redisRate is redis_rate v10: GCRA, a script call per decision.
func redisRate(client *goredis.Client, l limit) limiter {
	r := redis_rate.NewLimiter(client)
	rate := redis_rate.Limit{Rate: l.max, Burst: l.max, Period: l.window}
	return limiter{"redis_rate", func() take {
		return func(ctx context.Context, key string) (bool, error) {
			result, err := r.Allow(ctx, key, rate)
			return err == nil && result.Allowed > 0, err
		}
	}}
}

// rueidisLimiter is rueidislimiter: a fixed window, with a client that sends the
// commands of concurrent callers together.
func rueidisLimiter(addr string, l limit) (limiter, func(), error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: patience})
	if err != nil {
		return limiter{}, nil, err
	}
	r, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientBuilder: func(rueidis.ClientOption) (rueidis.Client, error) { return client, nil },
		Limit:         l.max,
		Window:        l.window,
	})
	return limiter{"rueidislimiter", func() take {
		return func(ctx context.Context, key string) (bool, error) {
			result, err := r.Allow(ctx, key)
			return result.Allowed, err
		}
	}}, client.Close, err
}

// throttledOn is throttled v2: GCRA in Go, by compare and swap on a store.
func throttledOn(store throttled.GCRAStoreCtx, l limit) (limiter, error) {
	r, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(l.max, l.window),
		MaxBurst: l.max - 1,
	})
	return limiter{"throttled", func() take {
		return func(ctx context.Context, key string) (bool, error) {
			limited, _, err := r.RateLimitCtx(ctx, key, 1)
			return !limited, err
		}
	}}, err
}

// ululeOn is ulule/limiter v3: a fixed window.
func ululeOn(store ulule.Store, l limit) limiter {
	r := ulule.New(store, ulule.Rate{Limit: int64(l.max), Period: l.window})
	return limiter{"ulule", func() take {
		return func(ctx context.Context, key string) (bool, error) {
			result, err := r.Get(ctx, key)
			return !result.Reached, err
		}
	}}
}

// redisPeers returns the other limiters on a server. Throttled is left out if
// callers share keys: it gives up on a key after ten lost races.
func (b *bench) redisPeers(s *server, l limit, callers int, sharedKeys bool) ([]limiter, error) {
	client := newClient(s.Addr, callers)
	b.atEnd(func() { _ = client.Close() })
	rueidisPeer, closeRueidis, err := rueidisLimiter(s.Addr, l)
	if err != nil {
		return nil, fmt.Errorf("rueidislimiter: %w", err)
	}
	b.atEnd(closeRueidis)
	ululeStore, err := ululeredis.NewStore(client)
	if err != nil {
		return nil, fmt.Errorf("ulule: %w", err)
	}
	peers := []limiter{redisRate(client, l), rueidisPeer, ululeOn(ululeStore, l)}
	if sharedKeys {
		return peers, nil
	}
	throttledStore, err := throttledredis.NewCtx(client, "throttled:")
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	throttledPeer, err := throttledOn(throttledStore, l)
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	return append(peers, throttledPeer), nil
}

// memoryPeers are the other limiters that keep their counts in this process.
var memoryPeers = []struct {
	name string
	open func(l limit) (limiter, error)
}{
	{"caddy-ratelimit", func(l limit) (limiter, error) { return newRings(l), nil }},
	{"throttled", func(l limit) (limiter, error) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			return limiter{}, err
		}
		return throttledOn(store, l)
	}},
	{"ulule", func(l limit) (limiter, error) { return ululeOn(ululememory.NewStore(), l), nil }},
}
