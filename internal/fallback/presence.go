package fallback

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// heartbeatInterval is how often a process registers.
var heartbeatInterval = 5 * time.Second

// presence counts the processes that share the store, through the store, from the first Join to the last Leave.
type presence struct {
	store engine.Instancer // nil: one that cannot tell
	seen  *atomic.Int64    // processes, when the store last answered; 0: never

	mu     sync.Mutex // guards what follows
	users  int
	cancel context.CancelFunc
	done   chan struct{} // closed when heartbeat has returned
}

// Join announces calls of TakeLocal with share: the guard registers this process, and counts the others.
func (g *Guard) Join() { g.presence.join() }

// Leave takes one Join back. After the last one the others do not count this process
// any more.
func (g *Guard) Leave() { g.presence.leave() }

// Instances returns how many processes were last seen to share the store; 1 if none
// was.
func (g *Guard) Instances() int64 { return g.presence.size() }

// Counted is Instances, but 0 if they were never counted.
func (g *Guard) Counted() int64 { return g.presence.seen.Load() }

func (w *presence) size() int64 { return max(1, w.seen.Load()) }

func (w *presence) join() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; w.users > 1 || w.store == nil {
		return
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	w.done = make(chan struct{})
	go w.heartbeat(ctx, w.done, heartbeatInterval)
}

func (w *presence) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
	}
}

func (w *presence) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
}

// stop returns when heartbeat has returned. mu is held.
func (w *presence) stop() {
	if w.cancel != nil {
		w.cancel()
		<-w.done
		w.cancel = nil
	}
}

// heartbeat registers this process until ctx ends, and leaves. While the store is away, the count
// stays what it was.
func (w *presence) heartbeat(ctx context.Context, done chan struct{}, every time.Duration) {
	defer close(done)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if n, err := w.store.Register(ctx); err == nil {
			w.seen.Store(n)
		}
		select {
		case <-ctx.Done():
			_ = w.store.Leave(context.WithoutCancel(ctx)) // else they find out
			return
		case <-ticker.C:
		}
	}
}

// divided returns the charge as this process decides on it, one of n: with at least 1
// of each limit that is not 0, and without CL.THROTTLE.
func divided(c window.Charge, n int64) window.Charge {
	if a, ok := c.Algorithm.(window.GCRA); ok {
		a.Native, a.Burst = window.NativeOff, part(a.Burst, n)
		c.Algorithm = a
	}
	if n == 1 {
		return c
	}
	whole := c.Policies
	c.Policies = make([]window.Policy, len(whole))
	for i, p := range whole {
		p.Limit = part(p.Limit, n)
		c.Policies[i] = p
	}
	return c
}

// part returns one part of n of a number, at least 1 unless the number is 0.
func part(all, n int64) int64 {
	if all == 0 {
		return 0
	}
	return max(1, all/n)
}
