package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the name under which Redis keeps a script
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

var scriptSHA = sha(lua.Script)

// sha returns what a server calls a script.
func sha(script string) string {
	sum := sha1.Sum([]byte(script)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// scriptCmd is an EVALSHA or CL.THROTTLE that answers with integers. It is never sent again once
// it may have run, on a Cluster client either: that would charge twice.
// Redirects are still followed, for a redirected script has not run.
type scriptCmd struct {
	*goredis.IntSliceCmd
	sent *sent // of its call; nil for CL.THROTTLE
}

// NoRetry implements goredis.Cmder.
func (scriptCmd) NoRetry() bool { return true }

// unsend notes that no server has run the call, though it may have been sent.
func (c scriptCmd) unsend() {
	if c.sent != nil {
		c.sent.yes = false
	}
}

// sent is an argument of a call, and knows whether the client has written it: until
// then no server can have run the call, whatever the client says of it.
type sent struct {
	text []byte
	yes  bool
}

// MarshalBinary implements encoding.BinaryMarshaler. The client calls it as it writes.
func (s *sent) MarshalBinary() ([]byte, error) {
	s.yes = true
	return s.text, nil
}

// pipedCmd is a scriptCmd among others. Its reply stays, once it is there: when another
// node of a Cluster cannot be reached in time, the client sets an error to all.
type pipedCmd struct {
	scriptCmd
	answered bool
}

// SetErr implements goredis.Cmder.
func (c *pipedCmd) SetErr(err error) {
	if !c.answered {
		c.answered = err == nil
		c.scriptCmd.SetErr(err)
	}
}

// call is one run of the script, or of CL.THROTTLE: what is asked, and the answer.
type call struct {
	key      string // the first: it picks the node of a Cluster
	args     []any
	op       string
	requests [][]window.Charge
	namings  []naming // under each of which the requests are charged
	first    int      // the place of its first request among those that are decided on
	native   bool     // asks CL.THROTTLE, not the script
	now      sent     // the time in ms, or nothing: the first argument behind the keys
	kept     bool     // by a round, which uses it again
	reply    []int64
	err      error

	// Room for the command and what its arguments are made of. It is used again.
	cmd   scriptCmd
	buf   []byte
	ends  []int // in buf, of keys, id and plan
	texts []string
	plan  plan

	decisions []window.Decision // of the reply; reused
}

// newCall writes a call about one request, of the script or of CL.THROTTLE.
func (s *Store) newCall(namings []naming, op string, charges []window.Charge) *call {
	if s.native(charges) != window.NativeOff {
		return s.newNativeCall(op, charges)
	}
	return s.newScriptCall(namings, op, [][]window.Charge{charges})
}

// newSettleCalls writes calls that settle, one in all unless the names of a counter
// may be on several nodes of a Cluster. Each request is one charge, and has two of
// the numbers: at and delta.
func (s *Store) newSettleCalls(requests [][]window.Charge, numbers ...int64) []*call {
	if !s.cluster {
		return []*call{s.newScriptCall(s.namings, "settle", requests, numbers...)}
	}
	var calls []*call
	for i := range s.namings {
		calls = append(calls, s.newScriptCall(s.namings[i:i+1], "settle", requests, numbers...))
	}
	return calls
}

func (s *Store) newScriptCall(namings []naming, op string, requests [][]window.Charge, numbers ...int64) *call {
	return s.writeCall(&call{namings: namings}, op, requests, numbers...)
}

// writeCall makes c a call of the script, as the header of lua/driver.lua describes
// it. To the script, a request under two names is one with twice the charges; but
// settle, settle_each and reset take one charge at a time, and settling has two numbers after each.
func (s *Store) writeCall(c *call, op string, requests [][]window.Charge, numbers ...int64) *call {
	c.op, c.requests, c.first, c.native, c.reply, c.err = op, requests, 0, false, nil, nil
	c.buf, c.ends, c.args = c.buf[:0], c.ends[:0], c.args[:0]
	c.plan.reset()
	decides := op == "take" || op == "peek"
	for i, charges := range requests {
		first := len(c.buf)
		for k := range c.namings {
			n := &c.namings[k]
			for j := range charges {
				c.buf = n.appendKey(c.buf, &charges[j])
				c.ends = append(c.ends, len(c.buf))
			}
			if !decides {
				c.plan.apart(c.namings[k:k+1], charges)
			}
			if op == "settle" || op == "settle_each" {
				c.plan.requests.int(numbers[2*i])
				c.plan.requests.int(numbers[2*i+1])
			}
		}
		if decides {
			c.plan.request(c.namings, charges, c.buf[first:])
		}
	}
	keys := len(c.ends)
	c.buf = s.ids.appendNext(c.buf)
	c.ends = append(c.ends, len(c.buf))
	c.buf = c.plan.append(c.buf)
	c.ends = append(c.ends, len(c.buf))
	// One block of memory for all texts. Pointers to them need none of their own.
	text, start := string(c.buf), 0
	c.texts = c.texts[:0]
	for _, end := range c.ends {
		c.texts = append(c.texts, text[start:end])
		start = end
	}
	c.args = append(c.args, "evalsha", &scriptSHA, keys)
	for i := range keys {
		c.args = append(c.args, &c.texts[i])
	}
	c.now.text, c.now.yes = c.now.text[:0], false
	if s.now != nil {
		c.now.text = strconv.AppendInt(c.now.text, s.now(), 10)
	}
	c.args = append(c.args, &c.now, &c.op, &c.texts[keys], &c.texts[keys+1])
	c.key = c.texts[0]
	return c
}

// run sends the calls in one round trip, and sets their reply or err.
func (s *Store) run(ctx context.Context, calls []*call) {
	s.leaveNative(ctx, calls)
	s.send(ctx, calls)
	s.send(ctx, s.refusedNative(ctx, calls))
	s.lookAgain(ctx, calls)
}

func (s *Store) send(ctx context.Context, calls []*call) {
	if len(calls) == 0 {
		return
	}
	whole := ctx
	ctx, cancel := s.inTime(whole)
	defer cancel()
	start := time.Now()
	switch len(calls) {
	case 1:
		c := calls[0]
		c.cmd = c.command(ctx)
		_ = s.client.Process(ctx, &c.cmd)
		c.answered(c.cmd, nil)
	default:
		pipe := s.client.Pipeline()
		cmds := make([]pipedCmd, len(calls))
		for i, c := range calls {
			cmds[i].scriptCmd = c.command(ctx)
			_ = pipe.Process(ctx, &cmds[i])
		}
		_, err := pipe.Exec(ctx)
		for i, c := range calls {
			c.answered(cmds[i].scriptCmd, err)
		}
	}
	if calls[0].err == nil {
		s.trip.note(start)
	} else if ctx != whole {
		s.noConnection(whole, ctx, calls)
	}
}

// answered takes the reply or error of the call's command, which went with others that
// ended with an error.
func (c *call) answered(cmd scriptCmd, of error) {
	if c.reply, c.err = cmd.Result(); c.reply == nil && c.err == nil {
		c.err = of // the server refused the connection, which the client says of no command
	}
	if c.err != nil && cmd.sent != nil && !cmd.sent.yes {
		c.err = unwritten{c.err}
	}
}

func (c *call) command(ctx context.Context) scriptCmd {
	cmd := scriptCmd{IntSliceCmd: goredis.NewIntSliceCmd(ctx, c.args...), sent: &c.now}
	if c.native {
		cmd.SetFirstKeyPos(1)
		cmd.sent = nil
	}
	return cmd
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

func (i ids) appendNext(dst []byte) []byte {
	return strconv.AppendUint(append(dst, i.instance...), i.counter.Add(1), 36)
}
