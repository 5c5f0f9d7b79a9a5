package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/tasks"
)

// WarmPool is a hook of the client of one server. Where that is far away, it keeps connections
// that are idle: a request has no time to wait for one.
type WarmPool struct {
	Server     *goredis.Client
	Background *tasks.Background
	Patience   time.Duration // of making a connection
	Need       func() bool   // whether the server is far away, and takes more connections

	making atomic.Bool // some are being made
}

// DialHook implements goredis.Hook.
func (*WarmPool) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements goredis.Hook.
func (p *WarmPool) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		p.keep()
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (p *WarmPool) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		p.keep()
		return err
	}
}

// keep makes more connections if too few are idle: three, and one for four that there are.
func (p *WarmPool) keep() {
	if !p.Need() || p.making.Load() {
		return
	}
	stats := p.Server.PoolStats()
	missing := min(3+int(stats.TotalConns)/4, p.Server.Options().PoolSize-int(stats.TotalConns-stats.IdleConns)) - int(stats.IdleConns)
	if missing <= 0 || !p.making.CompareAndSwap(false, true) {
		return
	}
	if !p.Background.Run(func() {
		defer p.making.Store(false)
		p.add(missing + int(stats.IdleConns))
	}) {
		p.making.Store(false)
	}
}

// add sends a command on each of n connections at once. Missing connections are opened.
func (p *WarmPool) add(n int) {
	ctx, cancel := context.WithTimeout(p.Background.Context, p.Patience)
	defer cancel()
	var group sync.WaitGroup
	for range n {
		group.Go(func() { _ = p.Server.Time(ctx).Err() })
	}
	group.Wait()
}
