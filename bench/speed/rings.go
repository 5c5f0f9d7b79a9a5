package main

import (
	"context"
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/mholt/caddy-ratelimit"
)

// rings are the ring buffers of caddy-ratelimit, as its handler uses them for a
// request: one lock to find the buffer of a key, one to decide. The package does
// not export them. The linker reaches them all the same, so that they are measured
// without the handler around them, as the stores here are.
type rings struct {
	all *ringMap
	limit
}

// ringMap and ring stand for types of that package; only pointers are used.
type (
	ringMap struct{}
	ring    struct{}
)

//go:linkname newRingMap github.com/mholt/caddy-ratelimit.newRateLimiterMap
func newRingMap() *ringMap

//go:linkname ringOf github.com/mholt/caddy-ratelimit.(*rateLimitersMap).getOrInsert
func ringOf(all *ringMap, key string, maxEvents int, window time.Duration) *ring

//go:linkname ringWhen github.com/mholt/caddy-ratelimit.(*ringBufferRateLimiter).When
func ringWhen(r *ring) time.Duration

func newRings(l limit) limiter {
	r := &rings{newRingMap(), l}
	return limiter{"caddy-ratelimit", func() take {
		return func(_ context.Context, key string) (bool, error) {
			return ringWhen(ringOf(r.all, key, r.max, r.window)) == 0, nil
		}
	}}
}
