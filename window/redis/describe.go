package redis

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Describe implements engine.Describer. The version is what servers say when a connection is
// made, the clock needs +time, and the memory +info, which the user may lack.
func (s engineStore) Describe(ctx context.Context) (engine.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var all engine.Description
	var mu sync.Mutex // guards all
	err := s.each(ctx, func(ctx context.Context, client *goredis.Client) error {
		d, err := describe(ctx, client)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if d.ClockOffset.Abs() > all.ClockOffset.Abs() {
			all.ClockOffset = d.ClockOffset
		}
		if all.Memory == nil || d.Memory != nil && fuller(d.Memory, all.Memory) {
			all.Memory = d.Memory
		}
		return nil
	})
	if err != nil {
		return engine.Description{}, s.words.Fail(ctx, err)
	}
	if h := s.server.Load(); h != nil {
		all.Version, all.Mode = strings.TrimSpace(h.Server+" "+h.Version), h.Mode
	}
	return all, nil
}

// describe asks one server in one round trip.
func describe(ctx context.Context, client *goredis.Client) (d engine.Description, err error) {
	pipe := client.Pipeline()
	clock := pipe.Time(ctx)
	memory := pipe.Info(ctx, "memory")
	start := time.Now()
	_, _ = pipe.Exec(ctx) // each says below whether it failed
	half := time.Since(start) / 2
	now, err := clock.Result()
	if err != nil {
		return d, err
	}
	d.ClockOffset = now.Sub(start.Add(half)).Round(time.Millisecond)
	if text, err := memory.Result(); err == nil {
		d.Memory = parseMemory(text)
	}
	return d, nil
}

// parseMemory reads a reply to INFO memory; nil if the reply lacks that section.
func parseMemory(text string) *engine.ServerMemory {
	var m engine.ServerMemory
	known := false
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_memory":
			n, err := strconv.ParseInt(value, 10, 64)
			m.Used, known = n, err == nil
		case "maxmemory":
			m.Max, _ = strconv.ParseInt(value, 10, 64)
		case "maxmemory_policy":
			m.Policy = value
		}
	}
	if !known {
		return nil
	}
	return &m
}

// fuller reports whether counters on a are nearer to being dropped than on b.
func fuller(a, b *engine.ServerMemory) bool {
	if a.Evicts() != b.Evicts() {
		return a.Evicts()
	}
	return a.Ratio() > b.Ratio()
}

// AppendKeyHash implements engine.KeyHasher.
func (s engineStore) AppendKeyHash(dst []byte, key string) []byte {
	sum := s.namings[0].Sum(key)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:])
}

// HashesKeys implements engine.KeyHasher.
func (s engineStore) HashesKeys() bool { return s.namings[0].Hashes() }

// HashKey returns the HMAC of a key under the secret number n, counted from 0: the current one, and
// the former one. It reports false if no secret has that number.
func (s engineStore) HashKey(key string, n int) (sum [32]byte, ok bool) {
	if n >= len(s.namings) || !s.namings[n].Hashes() {
		return sum, false
	}
	return s.namings[n].Sum(key), true
}

// CounterName implements engine.CounterNamer.
func (s engineStore) CounterName(c window.Charge) string {
	if s.throttles([]window.Charge{c}) {
		return string(s.namings[0].AppendNative(nil, &c))
	}
	return string(s.namings[0].AppendKey(nil, &c))
}
