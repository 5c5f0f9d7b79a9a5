// Package stores holds the stores of sliding_window as Caddy modules: their
// options, their Caddyfile, and the pools that let them outlive a reload.
package stores

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// pooled is a store in a pool, with the key that it has there.
type pooled struct {
	pool  *caddy.UsagePool
	key   any
	store closer
}

type closer struct{ window.Store }

// linger is how long at least a store still decides that no configuration uses any more,
// for requests that came before a reload, and may reach their limit late: Caddy does not
// wait for them.
const linger = 5 * time.Second

// lookAgain is the time between two looks whether something is still to be settled in a store.
const lookAgain = time.Second

// Destruct implements caddy.Destructor.
func (c closer) Destruct() error {
	encrypted.Delete(c.Store)
	late, ok := c.Store.(interface {
		Drain()
		Timeout() time.Duration
	})
	if !ok || caddy.Exiting() {
		return c.Close()
	}
	late.Drain()
	lingering.Store(c, nil)
	c.closeAfter(max(linger, late.Timeout()), 0)
	return nil
}

// closeAfter closes the store after a time, some time after it was to be closed. It stays open
// for requests that are answered later and settled then.
func (c closer) closeAfter(wait, since time.Duration) {
	time.AfterFunc(wait, func() {
		since += wait
		if held, ok := c.Store.(interface{ Held() time.Duration }); ok && held.Held() > since {
			c.closeAfter(lookAgain, since)
			return
		}
		c.closeOnce()
	})
}

// lingering has the stores that no configuration uses and that are open. They close at the latest when Caddy exits, so that
// what their requests hold is free at once.
var lingering sync.Map

func init() {
	caddy.OnExit(func(context.Context) {
		lingering.Range(func(c, _ any) bool {
			c.(closer).closeOnce()
			return true
		})
	})
}

// closeOnce closes a store that lingers.
func (c closer) closeOnce() {
	if _, lingers := lingering.LoadAndDelete(c); lingers {
		_ = c.Close()
	}
}

// acquire returns the store of that key, and makes it with open if the pool has no such
// store. A panic of open becomes an error: it would leave the key locked for good.
func acquire(pool *caddy.UsagePool, key any, open func() window.Store) (*pooled, error) {
	value, _, err := pool.LoadOrNew(key, func() (store caddy.Destructor, err error) {
		defer func() {
			if reason := recover(); reason != nil {
				err = fmt.Errorf("cannot be made: %v", reason)
			}
		}()
		return closer{open()}, nil
	})
	if err != nil {
		return nil, err
	}
	return &pooled{pool, key, value.(closer)}, nil
}

// release gives the store back; the last one closes it. A nil pooled was never
// acquired.
func (p *pooled) release() error {
	if p == nil {
		return nil
	}
	_, err := p.pool.Delete(p.key)
	return err
}
