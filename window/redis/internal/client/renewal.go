package client

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// Renewal is a hook of the client of one server. Once the server says that it is not the one to ask,
// all connections to it are stale: the name of the server may stand for another one by now. A stale
// connection is dropped in place of being used again, and a new one looks the name up.
type Renewal struct {
	era atomic.Int64 // connections of former eras are stale
}

// wrongServer are the words with which a server begins the error of a call that another server
// would take.
var wrongServer = []string{"READONLY ", "LOADING ", "MASTERDOWN "}

// isWrongServer reports whether an error says that another server has to be asked.
func isWrongServer(err error) bool {
	if err == nil {
		return false
	}
	return beginsWith(strings.TrimPrefix(err.Error(), "ERR "), wrongServer) // ERR precedes what a script says
}

// beginsWith reports whether a text begins with one of the prefixes.
func beginsWith(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// DialHook implements goredis.Hook.
func (r *Renewal) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		era := r.era.Load() // before the name is looked up
		conn, err := next(ctx, network, address)
		if c, ok := conn.(interface{ StaleWhen(func() bool) }); ok && err == nil {
			c.StaleWhen(func() bool { return r.era.Load() != era })
		}
		return conn, err
	}
}

// ProcessHook implements goredis.Hook.
func (r *Renewal) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if isWrongServer(err) {
			r.era.Add(1)
		}
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (r *Renewal) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if isWrongServer(cmd.Err()) {
				r.era.Add(1)
				break
			}
		}
		return err
	}
}
