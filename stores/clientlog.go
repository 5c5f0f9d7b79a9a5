package stores

import (
	"context"
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2"
	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// logClients makes go-redis write to Caddy's log in place of standard error. That holds for the whole
// process: go-redis has one log for all clients, other plugins' included, and does not tell which
// client writes. See clientLog for what becomes of whose lines.
var logClients = sync.OnceFunc(func() { goredis.SetLogger(clientLog{}) })

// ownMasters has the names of the masters that Sentinels watch for stores of this module.
var ownMasters sync.Map

// clientLog is the log of go-redis. Lines of stores of this module are written at the debug level,
// without what servers say: what matters is in the errors that the client returns. Every other line is
// written unchanged, as a warning of a logger of its own, for it may be another plugin's.
type clientLog struct{}

// Printf implements the logger of go-redis.
func (clientLog) Printf(_ context.Context, format string, v ...any) {
	level, name := zap.WarnLevel, "go-redis"
	if isOwn(v) {
		level, name = zap.DebugLevel, "http.sliding_window.stores.redis"
		for i := range v {
			if err, ok := v[i].(error); ok {
				v[i] = redis.Shown(err)
			}
		}
	}
	if c := caddy.Log().Named(name).Check(level, "client"); c != nil {
		c.Write(zap.String("message", fmt.Sprintf(format, v...)))
	}
}

// isOwn reports whether a line is about a client of this module: it holds an error of a connection
// that the module makes, or the name of a master. Other lines of its clients cannot be told from
// those of others, and are rare.
func isOwn(v []any) bool {
	for _, v := range v {
		switch v := v.(type) {
		case error:
			if redis.IsDialError(v) {
				return true
			}
		case string:
			if _, own := ownMasters.Load(v); own && v != "" {
				return true
			}
		}
	}
	return false
}
