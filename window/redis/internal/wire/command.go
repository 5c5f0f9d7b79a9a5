package wire

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
)

// command is an EVALSHA or CL.THROTTLE that answers with integers. It is never sent again once
// it may have run, on a Cluster client either: that would charge twice.
// Redirects are still followed, for a redirected script has not run.
type command struct {
	*goredis.IntSliceCmd
	sent *sent // of its call; nil for CL.THROTTLE
}

// NoRetry implements goredis.Cmder.
func (command) NoRetry() bool { return true }

// Unsend notes that no server has run the call, though it may have been sent.
func (c command) Unsend() {
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

// piped is a command among others. Its reply stays, once it is there: when another
// node of a Cluster cannot be reached in time, the client sets an error to all.
type piped struct {
	command
	answered bool
}

// SetErr implements goredis.Cmder.
func (c *piped) SetErr(err error) {
	if !c.answered {
		c.answered = err == nil
		c.command.SetErr(err)
	}
}

// ClearErr takes back an error that is no answer.
func (c *piped) ClearErr() { c.command.SetErr(nil) }

// Send sends calls in one round trip, and sets their Reply or Err.
func Send(ctx context.Context, client goredis.UniversalClient, calls []*Call) {
	if len(calls) == 1 {
		c := calls[0]
		c.cmd = c.command(ctx)
		_ = client.Process(ctx, &c.cmd)
		c.answered(c.cmd, nil)
		return
	}
	pipe := client.Pipeline()
	cmds := make([]piped, len(calls))
	for i, c := range calls {
		cmds[i].command = c.command(ctx)
		_ = pipe.Process(ctx, &cmds[i])
	}
	_, err := pipe.Exec(ctx)
	for i, c := range calls {
		c.answered(cmds[i].command, err)
	}
}

// answered takes the reply or error of the call's command, which went with others that
// ended with an error.
func (c *Call) answered(cmd command, of error) {
	if c.Reply, c.Err = cmd.Result(); c.Reply == nil && c.Err == nil {
		c.Err = of // the server refused the connection, which the client says of no command
	}
	if c.Err != nil && cmd.sent != nil && !cmd.sent.yes {
		c.Err = failure.Unwritten(c.Err)
	}
}

func (c *Call) command(ctx context.Context) command {
	cmd := command{IntSliceCmd: goredis.NewIntSliceCmd(ctx, c.args...), sent: &c.now}
	if c.Native {
		cmd.SetFirstKeyPos(1)
		cmd.sent = nil
	}
	return cmd
}
