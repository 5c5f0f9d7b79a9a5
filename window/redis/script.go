package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the name under which Redis keeps a script
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"sync/atomic"

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

// call is one run of the script, or of CL.THROTTLE: what is asked, and the answer.
type call struct {
	key      string // the first: it picks the node of a Cluster
	args     []any
	op       string
	requests [][]window.Charge
	first    int  // the place of its first request among those that are decided on
	native   bool // asks CL.THROTTLE, not the script
	reply    []int64
	err      error
}

// newCall writes a call about one request, of the script or of CL.THROTTLE.
func (s *Store) newCall(op string, charges []window.Charge) *call {
	if native(charges) != window.NativeOff {
		return s.newNativeCall(op, charges)
	}
	return s.newScriptCall(op, [][]window.Charge{charges})
}

func (s *Store) newSettleCall(charge window.Charge, at, delta int64) *call {
	return s.newScriptCall("settle", [][]window.Charge{{charge}}, at, delta)
}

// newScriptCall writes a call of the script as the header of lua/driver.lua
// describes it. Of the numbers, settle has two after each charge: at and delta.
func (s *Store) newScriptCall(op string, requests [][]window.Charge, numbers ...int64) *call {
	keys, p := s.keys(requests), newPlan(len(requests))
	for i, charges := range requests {
		p.request(charges)
		if len(numbers) > 0 {
			p.int(numbers[2*i])
			p.int(numbers[2*i+1])
		}
	}
	args := make([]any, 0, 3+len(keys)+4)
	args = append(args, "evalsha", scriptSHA, len(keys))
	for i := range keys {
		args = append(args, &keys[i]) // a pointer needs no memory of its own
	}
	var now any = ""
	if s.now != nil {
		now = s.now()
	}
	args = append(args, now, op, s.ids.next(), p.list())
	return &call{key: keys[0], args: args, op: op, requests: requests}
}

// keys returns the names of the requests' counters, which share one block of
// memory.
func (s *Store) keys(requests [][]window.Charge) []string {
	n := 0
	for _, charges := range requests {
		n += len(charges)
	}
	buf, ends := make([]byte, 0, 64*n), make([]int, 0, n)
	for _, charges := range requests {
		for i := range charges {
			buf = window.AppendKey(append(buf, s.prefix...), &charges[i])
			ends = append(ends, len(buf))
		}
	}
	keys, text, start := make([]string, n), string(buf), 0
	for i, end := range ends {
		keys[i], start = text[start:end], end
	}
	return keys
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
