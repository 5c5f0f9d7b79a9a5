package client

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/tasks"
)

// Loader is a hook of the client of one server. A server that does not know a
// script gets them, and then the calls that it refused again. It has to be the server
// that refused them: of a slot on its way to another node of a Cluster, that is not
// the one where the key is said to be. A Loader of a whole Cluster sends them to every master.
type Loader struct {
	// Each calls a function with the client of each server that gets the scripts.
	Each       func(ctx context.Context, load func(context.Context, *goredis.Client) error) error
	Own        bool // whether other calls than those of package wire are left alone
	Background *tasks.Background
	Patience   time.Duration // of a load

	mu    sync.Mutex // guards under
	under *loading   // way; nil: none is
}

// loading is a load that is under way.
type loading struct {
	done chan struct{} // closed when it has ended
	err  error         // then
}

// DialHook implements goredis.Hook.
func (*Loader) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// loads is how often a call is made again, because scripts may be flushed as often as
// they come.
const loads = 3

// ProcessHook implements goredis.Hook.
func (l *Loader) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		for again := 0; ; again++ {
			unsend(cmd)
			err := next(ctx, cmd)
			if !l.lacksScript(cmd, err) || again == loads {
				return err
			}
			if err := l.load(ctx); err != nil {
				unsend(cmd)
				cmd.SetErr(err)
				return err
			}
		}
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (l *Loader) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		for again := 0; ; again++ {
			clearErrors(cmds)
			err := next(ctx, cmds)
			if cmds = l.refused(cmds); len(cmds) == 0 || again == loads {
				return err
			}
			if err := l.load(ctx); err != nil {
				for _, cmd := range cmds {
					unsend(cmd)
					cmd.SetErr(err)
				}
				return err
			}
		}
	}
}

// clearErrors resets the errors of commands that are about to be resent: NOSCRIPT or a
// redirect. If the second reply is lost, go-redis sets an error only on commands that have
// no error: with the old one left in place, it would look as if the command never ran.
func clearErrors(cmds []goredis.Cmder) {
	for _, cmd := range cmds {
		unsend(cmd)
		if c, ok := cmd.(interface{ ClearErr() }); ok {
			c.ClearErr() // SetErr would count as the answer
		} else {
			cmd.SetErr(nil)
		}
	}
}

// unsend notes of a call that it is to be made, or was refused.
func unsend(cmd goredis.Cmder) {
	if c, ok := cmd.(interface{ Unsend() }); ok {
		c.Unsend()
	}
}

// refused returns the commands that lack the script, with what has to precede them.
func (l *Loader) refused(cmds []goredis.Cmder) (all []goredis.Cmder) {
	for i, cmd := range cmds {
		if !l.lacksScript(cmd, cmd.Err()) {
			continue
		}
		if i > 0 && cmds[i-1].Name() == "asking" { // holds for the next command only
			all = append(all, cmds[i-1])
		}
		all = append(all, cmd)
	}
	return all
}

// load sends the scripts by SCRIPT LOAD, because some servers drop scripts that came
// with EVAL. It has a time of its own, and goes on when ctx ends: a request that was refused
// first may have no time for it. Requests that need it at the same time share it.
func (l *Loader) load(ctx context.Context) error {
	l.mu.Lock()
	now := l.under
	if now == nil {
		now = &loading{done: make(chan struct{})}
		if l.Background.Run(func() { l.send(now) }) {
			l.under = now
		} else {
			now.err = goredis.ErrClosed
			close(now.done)
		}
	}
	l.mu.Unlock()
	select {
	case <-now.done:
		return now.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Loader) send(now *loading) {
	ctx, cancel := context.WithTimeout(l.Background.Context, l.Patience)
	defer cancel()
	now.err = l.Each(ctx, func(ctx context.Context, server *goredis.Client) error {
		_, err := server.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for _, script := range scripts.All() {
				pipe.ScriptLoad(ctx, script)
			}
			return nil
		})
		return err
	})
	l.mu.Lock()
	l.under = nil
	l.mu.Unlock()
	close(now.done)
}

func (l *Loader) lacksScript(cmd goredis.Cmder, err error) bool {
	if err == nil || !goredis.HasErrorPrefix(err, "NOSCRIPT") { // the words after it differ in Valkey
		return false
	}
	_, own := cmd.(interface{ Unsend() })
	return own || !l.Own
}
