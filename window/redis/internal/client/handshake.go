// Package client holds hooks of the Redis client: what is done on each new connection, when a server
// lacks a script, and to keep connections to a server that is far away.
package client

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
)

// Handshake is a hook of the client of one server. It tells a new connection who the user is
// and which database to use before the client has the connection: the client would do so
// within the time of the request that happens to be the first.
//
// The client still says HELLO, without a password. Its reply is the one that the server gave to the Handshake.
type Handshake struct {
	Username, Password string
	DB                 int
	Context            context.Context     // ends with the store
	OnHello            func(*Hello)        // is told what the server says of itself
	Seed               func(time.Duration) // is told how long the greeting took
}

// DialHook implements goredis.Hook. The pool of the client dials apart from requests, with a
// time of its own.
func (g Handshake) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		if err != nil {
			return nil, failure.Unwritten(err)
		}
		end, _ := ctx.Deadline() // zero: none
		_ = conn.SetDeadline(end)
		stop := context.AfterFunc(g.Context, func() { _ = conn.Close() })
		said, err := g.greet(conn)
		if !stop() && err == nil {
			err = goredis.ErrClosed
		}
		if err != nil {
			_ = conn.Close()
			return nil, failure.Unwritten(err)
		}
		_ = conn.SetDeadline(time.Time{})
		if c, ok := conn.(interface{ Greeted([]byte) }); ok {
			c.Greeted(said)
		}
		return conn, nil
	}
}

// ProcessHook implements goredis.Hook.
func (Handshake) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements goredis.Hook.
func (Handshake) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// greet logs in and selects the database. It returns the reply to HELLO.
//
// The calls are those that the client would make: a server that does not know HELLO, or not
// this version of the protocol, gets AUTH, and is talked to in the older one.
func (g Handshake) greet(conn net.Conn) (said []byte, err error) {
	r := bufio.NewReader(conn)
	ask := func(commands ...[]string) (replies [][]byte, err error) {
		var b []byte
		for _, args := range commands {
			b = resp.AppendCommand(b, args)
		}
		if _, err := conn.Write(b); err != nil {
			return nil, reasonOf(r, err)
		}
		for range commands {
			reply, err := resp.ReadReply(r, nil)
			if err != nil {
				return nil, err
			}
			replies = append(replies, reply)
		}
		return replies, nil
	}
	first := []string{"hello", "3"}
	auth := []string{"auth"}
	if g.Password != "" {
		user := "default"
		if g.Username != "" {
			user = g.Username
			auth = append(auth, user)
		}
		first = append(first, "auth", user, g.Password)
		auth = append(auth, g.Password)
	}
	rest := [][]string{}
	if g.DB > 0 {
		rest = append(rest, []string{"select", strconv.Itoa(g.DB)})
	}
	start := time.Now()
	replies, err := ask(append([][]string{first}, rest...)...)
	if err != nil {
		return nil, err
	}
	g.Seed(time.Since(start))
	said = replies[0]
	if refusal := resp.RefusalOf(said); refusal == nil {
		g.OnHello(parseHello(said))
	} else if isClosing(refusal) {
		return nil, refusal
	} else {
		said = []byte("-ERR no HELLO\r\n") // the server's words may hold the password
		if g.Password != "" {
			if replies, err = ask(append([][]string{auth}, rest...)...); err != nil {
				return nil, err
			}
			if err := resp.RefusalOf(replies[0]); err != nil {
				return nil, err
			}
		}
	}
	for _, reply := range replies[1:] {
		if err := resp.RefusalOf(reply); err != nil {
			return nil, err
		}
	}
	if r.Buffered() > 0 {
		return nil, failure.ErrReply
	}
	return said, nil
}

// closing are the words with which a server begins the error that it closes a new connection with.
var closing = []string{"ERR max number of clients", "DENIED "}

func isClosing(refusal error) bool { return beginsWith(refusal.Error(), closing) }

// reasonOf returns what the server said before it closed the connection, if it said something, and
// else the error with which that was noticed.
func reasonOf(r *bufio.Reader, err error) error {
	if reply, bad := resp.ReadReply(r, nil); bad == nil {
		if refusal := resp.RefusalOf(reply); refusal != nil {
			return refusal
		}
	}
	return err
}

// Hello is what a server says of itself.
type Hello struct{ Server, Version, Mode string }

// parseHello reads a reply to HELLO, of which all is optional.
func parseHello(reply []byte) *Hello {
	h := new(Hello)
	r := bufio.NewReader(bytes.NewReader(reply))
	if line, _ := r.ReadString('\n'); !strings.HasPrefix(line, "%") {
		return h
	}
	for {
		name, err := resp.ReadReply(r, nil)
		if err != nil {
			return h
		}
		value, err := resp.ReadReply(r, nil)
		if err != nil {
			return h
		}
		switch resp.TextOf(name) {
		case "server":
			h.Server = resp.TextOf(value)
		case "version":
			h.Version = resp.TextOf(value)
		case "mode":
			h.Mode = resp.TextOf(value)
		}
	}
}
