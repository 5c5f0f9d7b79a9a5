package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the name under which Redis keeps a script
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

var scriptSHA = func() string {
	sum := sha1.Sum([]byte(lua.Script)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}()

// scriptCmd is an EVALSHA or CL.THROTTLE that answers with integers. It is never sent again once
// it may have run, on a Cluster client either: that would charge twice.
// Redirects are still followed, for a redirected script has not run.
type scriptCmd struct{ *goredis.IntSliceCmd }

// NoRetry implements goredis.Cmder.
func (scriptCmd) NoRetry() bool { return true }

// call is one run of the script: what is asked, and the answer.
type call struct {
	key     string // of the first charge: it picks the node of a Cluster
	args    []any
	op      string
	charges []window.Charge
	native  bool // asks CL.THROTTLE, not the script
	reply   []int64
	err     error
}

// newCall writes a call as the header of lua/driver.lua describes it, or one of
// CL.THROTTLE.
func (s *Store) newCall(op string, charges []window.Charge, numbers ...int64) *call {
	if native(charges) != window.NativeOff {
		return s.newNativeCall(op, charges)
	}
	return s.newScriptCall(op, charges, numbers...)
}

func (s *Store) newScriptCall(op string, charges []window.Charge, numbers ...int64) *call {
	args := make([]any, 0, 5+len(numbers)+16*len(charges))
	args = append(args, "evalsha", scriptSHA, len(charges))
	var buf []byte
	for i := range charges {
		buf = window.AppendKey(append(buf[:0], s.prefix...), &charges[i])
		args = append(args, string(buf))
	}
	if s.now != nil {
		args = append(args, s.now())
	} else {
		args = append(args, "")
	}
	args = append(args, op)
	for _, n := range numbers {
		args = append(args, n)
	}
	for i := range charges {
		c := &charges[i]
		options := c.Algorithm.Options()
		args = append(args, c.Algorithm.Name(), c.Cost, s.ids.next(), len(options))
		for _, o := range options {
			args = append(args, o)
		}
		args = append(args, len(c.Policies))
		for _, p := range c.Policies {
			args = append(args, p.Limit, p.Window.Milliseconds())
		}
		args = append(args, len(c.Fields))
		for _, word := range c.Fields {
			args = append(args, word)
		}
	}
	return &call{key: args[3].(string), args: args, op: op, charges: charges}
}

// run sends the calls in one round trip, and sets their reply or err. A server
// that does not know the script gets it, and the calls that it refused again.
func (s *Store) run(ctx context.Context, calls []*call) {
	s.leaveNative(ctx, calls)
	s.send(ctx, calls)
	s.send(ctx, s.refusedNative(ctx, calls))
	var refused []*call
	var loaded map[goredis.Scripter]error
	for _, c := range calls {
		if !goredis.HasErrorPrefix(c.err, "NOSCRIPT") { // the words after it differ in Valkey
			continue
		}
		server, err := s.server(ctx, c.key)
		if err != nil {
			c.err = err
			continue
		}
		err, known := loaded[server]
		if !known {
			// SCRIPT LOAD, because some servers drop scripts that came with EVAL.
			err = server.ScriptLoad(ctx, lua.Script).Err()
			if loaded == nil {
				loaded = make(map[goredis.Scripter]error)
			}
			loaded[server] = err
		}
		if c.err = err; err == nil {
			refused = append(refused, c)
		}
	}
	s.send(ctx, refused)
}

func (s *Store) send(ctx context.Context, calls []*call) {
	switch len(calls) {
	case 0:
	case 1:
		cmd := calls[0].command(ctx)
		_ = s.client.Process(ctx, cmd)
		calls[0].reply, calls[0].err = cmd.Result()
	default:
		pipe := s.client.Pipeline()
		cmds := make([]scriptCmd, len(calls))
		for i, c := range calls {
			cmds[i] = c.command(ctx)
			_ = pipe.Process(ctx, cmds[i])
		}
		_, _ = pipe.Exec(ctx)
		for i, c := range calls {
			c.reply, c.err = cmds[i].Result()
		}
	}
}

func (c *call) command(ctx context.Context) scriptCmd {
	cmd := scriptCmd{goredis.NewIntSliceCmd(ctx, c.args...)}
	if c.native {
		cmd.SetFirstKeyPos(1)
	}
	return cmd
}

// server returns the server that holds key.
func (s *Store) server(ctx context.Context, key string) (goredis.Scripter, error) {
	if c, ok := s.client.(*goredis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return s.client, nil
}

// decisions appends the decisions of a reply to take or peek.
func (c *call) decisions(ds []window.Decision) ([]window.Decision, error) {
	if c.native {
		return c.nativeDecision(ds)
	}
	if want := 1 + 5*window.CountPolicies(c.charges); len(c.reply) != want {
		return nil, fmt.Errorf("unexpected reply of the script: %d integers, want %d", len(c.reply), want)
	}
	at, rest := c.reply[0], c.reply[1:]
	for i := range c.charges {
		for _, p := range c.charges[i].Policies {
			d := window.Decision{
				Allowed:         rest[0] == 1,
				Limit:           window.AtOnce(c.charges[i].Algorithm, p),
				Remaining:       rest[1],
				RetryAfter:      time.Duration(rest[2]) * time.Millisecond,
				ResetAfter:      time.Duration(rest[3]) * time.Millisecond,
				EffectiveWindow: time.Duration(rest[4]) * time.Millisecond,
				At:              at,
			}
			if rest[2] < 0 {
				d.RetryAfter = window.Never
			}
			ds, rest = append(ds, d), rest[5:]
		}
	}
	return ds, nil
}

// ids makes names for units that no other process makes too. They need not be
// secret.
type ids struct {
	instance string
	counter  *atomic.Uint64
}

func newIDs() ids {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails
	return ids{instance: base64.RawURLEncoding.EncodeToString(b[:]), counter: new(atomic.Uint64)}
}

func (i ids) next() string {
	return string(strconv.AppendUint([]byte(i.instance), i.counter.Add(1), 36))
}
