package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/tasks"
)

// said is an error in the words of a server.
func said(text string) error { return failure.RefusalError(text) }

// greeted is a connection that keeps what the server said to the greeting.
type greeted struct {
	net.Conn
	said string
}

func (g *greeted) Greeted(said []byte) { g.said = string(said) }

// dials returns a dialer to a server that answers each command in turn, and notes what it was told.
func dials(told *[]string, replies ...string) goredis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			r := bufio.NewReader(server)
			for _, reply := range replies {
				command, err := resp.ReadReply(r, nil)
				if err != nil {
					return
				}
				*told = append(*told, strings.Join(strings.Fields(string(command)), " "))
				_, _ = io.WriteString(server, reply)
			}
			_, _ = r.ReadByte()
		}()
		return client, nil
	}
}

// A connection is greeted before the client has it: by HELLO with the password, or by AUTH where the server is too old for that.
// A refusal ends the connection, and the server's words are passed to no caller.
func TestHandshake(t *testing.T) {
	const hello = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n"
	for _, c := range []struct {
		name    string
		replies []string
		told    string // the last words to the server
		err     string
		version string
	}{
		{"greeted", []string{hello, "+OK\r\n"}, "select", "", "7.2.4"},
		{"old", []string{"-ERR unknown command s3cret\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n"}, "select", "", ""},
		{"wrong password", []string{"-ERR unknown\r\n", "+OK\r\n", "-WRONGPASS s3cret\r\n", "+OK\r\n"}, "select", "WRONGPASS", ""},
		{"no such database", []string{hello, "-ERR DB index is out of range\r\n"}, "select", "DB index", "7.2.4"},
		{"no room", []string{"-ERR max number of clients reached\r\n", "+OK\r\n"}, "select", "max number", ""},
		{"says more", []string{hello, "+OK\r\n+MORE\r\n"}, "select", "malformed or too long", "7.2.4"},
	} {
		var told []string
		var met Hello
		g := Handshake{Username: "anna", Password: "s3cret", DB: 3, Context: t.Context(), OnHello: func(h *Hello) { met = *h }, Seed: func(time.Duration) {}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		seen := new(greeted)
		conn, err := g.DialHook(func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			seen.Conn, err = dials(&told, c.replies...)(ctx, network, address)
			return seen, err
		})(ctx, "tcp", "")
		cancel()
		if strings.Contains(seen.said, "s3cret") || (seen.said == "") != (c.err != "") {
			t.Errorf("%s: the client is told %q", c.name, seen.said)
		}
		if conn != nil {
			_ = conn.Close()
		}
		switch {
		case (err == nil) != (c.err == "") || (conn == nil) != (c.err != "") || err != nil && (!strings.Contains(err.Error(), c.err) || !errors.As(err, new(failure.UnwrittenError))):
			t.Errorf("%s: %v, want %q of a call that was not written", c.name, err, c.err)
		case met.Version != c.version || !strings.Contains(told[0], "hello") || !strings.Contains(told[0], "s3cret") || !strings.Contains(told[len(told)-1], c.told):
			t.Errorf("%s: met %+v, told %q", c.name, met, told)
		}
	}
	closed, end := context.WithCancel(t.Context())
	end()
	var told []string
	g := Handshake{Context: closed, OnHello: func(*Hello) {}, Seed: func(time.Duration) {}}
	if conn, err := g.DialHook(dials(&told, hello))(t.Context(), "tcp", ""); err == nil || conn != nil {
		t.Error("a store that is closed gets a connection")
	}
}

// call is a command of package wire.
type call struct {
	*goredis.Cmd
	sent int
}

func newCall() *call      { return &call{Cmd: goredis.NewCmd(context.Background(), "evalsha")} }
func (c *call) Unsend()   { c.sent = 0 }
func (c *call) ClearErr() { c.SetErr(nil) }

// Calls that lack the script are made again once the server has it, and no others. A load is shared, and ends apart from its callers.
func TestLoader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		background := tasks.NewBackground()
		defer background.Close()
		var loads, fails atomic.Int64
		l := &Loader{Background: background, Patience: time.Minute, Own: true, Each: func(ctx context.Context, _ func(context.Context, *goredis.Client) error) error {
			time.Sleep(time.Second)
			loads.Add(1)
			if fails.Load() > 0 {
				return errors.New("no load")
			}
			return ctx.Err()
		}}
		var lacking atomic.Int64 // loads until the server knows the script
		process := l.ProcessHook(func(_ context.Context, cmd goredis.Cmder) error {
			if c, ok := cmd.(*call); ok {
				c.sent++
			}
			if loads.Load() < lacking.Load() {
				cmd.SetErr(said("NOSCRIPT"))
				return cmd.Err()
			}
			return nil
		})
		lacking.Store(1)
		for range 5 {
			go func() {
				if err := process(t.Context(), newCall()); err != nil {
					t.Error(err)
				}
			}()
		}
		gone, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := process(gone, newCall()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that goes: %v", err)
		}
		time.Sleep(2 * time.Second)
		if n := loads.Load(); n != 1 {
			t.Errorf("%d loads for 6 calls at once, want 1", n)
		}
		lacking.Store(100) // somebody flushes them
		if err := process(t.Context(), newCall()); err == nil || loads.Load() != 1+3 {
			t.Errorf("%v after %d loads, want that of the server after 3 more", err, loads.Load()-1)
		}
		if err := process(t.Context(), goredis.NewCmd(t.Context(), "evalsha")); err == nil || loads.Load() != 4 {
			t.Error("the call of somebody else has scripts loaded")
		}
		fails.Store(1)
		if c := newCall(); process(t.Context(), c) == nil || c.sent != 0 || c.Err() == nil {
			t.Errorf("where the load fails: sent %d times, %v", c.sent, c.Err())
		}
		fails.Store(0)
		asking, refused, answered := goredis.NewCmd(t.Context(), "asking"), newCall(), newCall()
		var again []goredis.Cmder
		pipe := l.ProcessPipelineHook(func(_ context.Context, cmds []goredis.Cmder) error {
			if again = cmds; len(cmds) == 3 {
				refused.SetErr(said("NOSCRIPT"))
			}
			return nil
		})
		if err := pipe(t.Context(), []goredis.Cmder{answered, asking, refused}); err != nil || !slices.Equal(again, []goredis.Cmder{asking, refused}) || refused.Err() != nil {
			t.Errorf("of a pipeline %v are made again: %v", again, err)
		}
	})
}

// conn is a connection that knows when it is stale, and tells when it is closed.
type conn struct {
	net.Conn
	stale   func() bool
	onClose func()
}

func (c *conn) StaleWhen(stale func() bool) { c.stale = stale }
func (c *conn) OnClose(f func())            { c.onClose = f }

// All connections are stale that were made before a server said that another has to be asked.
func TestRenewal(t *testing.T) {
	r := new(Renewal)
	dial := func() *conn {
		c := new(conn)
		_, _ = r.DialHook(func(context.Context, string, string) (net.Conn, error) { return c, nil })(t.Context(), "", "")
		return c
	}
	ask := func(err error) {
		cmd := newCall()
		cmd.SetErr(err)
		_ = r.ProcessPipelineHook(func(context.Context, []goredis.Cmder) error { return nil })(t.Context(), []goredis.Cmder{newCall(), cmd})
		_ = r.ProcessHook(func(context.Context, goredis.Cmder) error { return err })(t.Context(), cmd)
	}
	for text, stale := range map[string]bool{"READONLY you": true, "ERR READONLY of a script": true, "LOADING a": true, "MASTERDOWN a": true, "OOM a": false, "READONLYs": false} {
		c := dial()
		if ask(said(text)); c.stale() != stale || dial().stale() {
			t.Errorf("%s: connections are stale: %v, want %v, and a new one %v", text, c.stale(), stale, dial().stale())
		}
	}
	if c := dial(); c.stale() {
		t.Error("a new connection is stale")
	} else if ask(nil); c.stale() {
		t.Error("an answer makes connections stale")
	}
}

// If no more connections can be made, calls share those that are open. One more is tried after a while, and the cause is told once.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		s := &Sharing{Tell: func(open int, _ error) {
			if told.Add(1); open != 2 {
				t.Errorf("%d connections are open, want 2", open)
			}
		}}
		full := errors.New("full")
		dial := func(err error) (*conn, error) {
			c := new(conn)
			_, got := s.DialHook(func(context.Context, string, string) (net.Conn, error) { return c, err })(t.Context(), "", "")
			return c, got
		}
		if _, err := dial(full); err != full || s.IsFew() { //nolint:errorlint // the very same
			t.Errorf("without any connection: %v, few %v", err, s.IsFew())
		}
		a, _ := dial(nil)
		b, _ := dial(nil)
		if _, err := dial(full); !errors.As(err, new(failure.UnsharedError)) || !s.IsFew() {
			t.Errorf("beside two connections: %v, few %v", err, s.IsFew())
		}
		var under, most atomic.Int64
		process := s.ProcessHook(func(context.Context, goredis.Cmder) error {
			most.Store(max(most.Load(), under.Add(1)))
			time.Sleep(time.Second)
			under.Add(-1)
			return nil
		})
		start := time.Now()
		var calls sync.WaitGroup
		for range 6 {
			calls.Go(func() {
				if err := process(t.Context(), newCall()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if c := newCall(); !errors.Is(process(ctx, c), failure.ErrShared) || !errors.Is(c.Err(), failure.ErrShared) {
			t.Errorf("a call that gets none in time: %v", c.Err())
		}
		calls.Wait()
		if took := time.Since(start).Truncate(time.Second); most.Load() != 2 || took != 3*time.Second || told.Load() != 1 {
			t.Errorf("%d calls at once for %s, and the cause was told %d times; want 2 for 3s, and once", most.Load(), took, told.Load())
		}
		time.Sleep(growAgain)
		most.Store(0)
		for range 4 {
			go func() { _ = process(t.Context(), newCall()) }()
		}
		if time.Sleep(2500 * time.Millisecond); most.Load() != 3 {
			t.Errorf("after %s, %d calls at once, want one more", growAgain, most.Load())
		}
		a.onClose()
		if b.onClose(); s.IsFew() {
			t.Error("there is something to share without any connection")
		}
	})
}

// A call that needed a connection that could not be made is made again on another.
func TestSharingRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, retry := range []bool{true, false} {
			s, calls := &Sharing{Retry: retry, Tell: func(int, error) {}}, 0
			err := s.ProcessPipelineHook(func(context.Context, []goredis.Cmder) error {
				if calls++; calls == 1 {
					return failure.Unshared(errors.New("full"))
				}
				return nil
			})(t.Context(), []goredis.Cmder{newCall()})
			if (err == nil) != retry || (calls == 2) != retry {
				t.Errorf("retry %v: %d calls, %v", retry, calls, err)
			}
		}
	})
}

// A node that hangs is left alone in time, and the next one is asked.
func TestTopologyOfAHungNode(t *testing.T) {
	cmd := goredis.NewClusterSlotsCmd(t.Context(), "cluster", "slots")
	err := Topology{Address: "asked:1", Patience: time.Millisecond}.ProcessHook(func(ctx context.Context, _ goredis.Cmder) error {
		<-ctx.Done()
		return ctx.Err()
	})(t.Context(), cmd)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(cmd.Err(), context.DeadlineExceeded) {
		t.Errorf("%v, %v; want that of the deadline", err, cmd.Err())
	}
}

// A node without a host is at the host that was asked. What is no list of slots is an error, and no panic.
func TestTopology(t *testing.T) {
	node := func(host any) []any { return []any{host, int64(7000), "id", []any{}} }
	slots := func(nodes ...any) []any { return []any{append([]any{int64(0), int64(9)}, nodes...)} }
	for _, c := range []struct {
		address string
		reply   []any
		want    string
		err     error
	}{
		{"asked:1", slots(node("10.0.0.1"), node("::1")), "[{0 9 [{id 10.0.0.1:7000 map[]} {id [::1]:7000 map[]}]}]", nil},
		{"asked:1", slots(node("")), "[{0 9 [{id asked:7000 map[]}]}]", nil},
		{"asked:1", slots(node(nil)), "[{0 9 [{id asked:7000 map[]}]}]", nil},
		{"asked:1", slots(node("?")), "", failure.ErrNoHostname},
		{"/socket", slots(node("")), "", failure.ErrReply},
		{"asked:1", slots(node(int64(5))), "", failure.ErrReply},
		{"asked:1", slots("text"), "", failure.ErrReply},
		{"asked:1", slots([]any{"host", "port"}), "", failure.ErrReply},
		{"asked:1", []any{int64(1)}, "", failure.ErrReply},
		{"asked:1", []any{[]any{"from", "to"}}, "", failure.ErrReply},
	} {
		cmd := goredis.NewClusterSlotsCmd(t.Context(), "cluster", "slots")
		err := Topology{Address: c.address, Patience: time.Minute}.ProcessHook(func(_ context.Context, asked goredis.Cmder) error {
			asked.(*goredis.SliceCmd).SetVal(c.reply)
			return nil
		})(t.Context(), cmd)
		if got := fmt.Sprint(cmd.Val()); !errors.Is(err, c.err) || cmd.Err() != err || err == nil && got != c.want { //nolint:errorlint // the very same
			t.Errorf("%v: %s, %v; want %s, %v", c.reply, got, err, c.want, c.err)
		}
	}
}
