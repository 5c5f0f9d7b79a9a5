// Package respguard keeps replies from the client that it would crash of: those that are too long,
// and those of a Sentinel that are of another form than it expects.
package respguard

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
)

// Dialer returns a function that connects as the client does, and ends connections
// on which replies are too long. With sentinels, servers may be such. An address without a host, as
// nodes of a Cluster redirect to, is at the host of first.
func Dialer(timeout time.Duration, encrypt *tls.Config, sentinels bool, first string) func(context.Context, string, string) (net.Conn, error) {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: timeout, TLSConfig: encrypt})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if port, ok := strings.CutPrefix(address, ":"); ok {
			if host, _, err := net.SplitHostPort(first); err == nil {
				address = net.JoinHostPort(host, port)
			}
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		checked := &checkedConn{Conn: conn}
		if sentinels {
			checked.replies.sentinel = new(sentinel)
		}
		var socket syscall.RawConn = unseen{} // of a connection with TLS
		if plain, ok := conn.(syscall.Conn); ok {
			if socket, err = plain.SyscallConn(); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		return checkedSocket{checked, socket}, nil
	}
}

// checkedConn is a connection that fails where a reply is too long.
type checkedConn struct {
	net.Conn
	replies replies
	hello   []byte // what answers the client's HELLO, if it comes first
	said    []byte // of that, what the client has not read yet

	stale  func() bool // nil: never
	closed func()      // nil: not called
	once   sync.Once   // of closed
}

// clientHello is what the client begins a connection with.
var clientHello = resp.AppendCommand(nil, []string{"hello", "3"})

// Greeted makes the connection answer the client's first command, HELLO, without the server.
func (c *checkedConn) Greeted(reply []byte) { c.hello = reply }

// StaleWhen has the client drop the connection in place of using it again, once stale reports
// true. It must be called before the client has the connection.
func (c *checkedConn) StaleWhen(stale func() bool) { c.stale = stale }

// OnClose calls closed once, when the connection is closed. It must be called before the
// client has the connection.
func (c *checkedConn) OnClose(closed func()) { c.closed = closed }

// Close implements net.Conn.
func (c *checkedConn) Close() error {
	if c.closed != nil {
		c.once.Do(c.closed)
	}
	return c.Conn.Close()
}

// checkedSocket is a connection whose socket the client can inspect. The client inspects it each time it takes the
// connection out of its pool, and drops a connection that it cannot inspect.
type checkedSocket struct {
	*checkedConn
	socket syscall.RawConn
}

// SyscallConn implements syscall.Conn.
func (c checkedSocket) SyscallConn() (syscall.RawConn, error) {
	if c.stale != nil && c.stale() {
		return nil, net.ErrClosed
	}
	return c.socket, nil
}

// unseen is a socket with TLS. What is on it is not what the client would read, so that a look at
// it sees nothing.
type unseen struct{}

// Control implements syscall.RawConn.
func (unseen) Control(func(uintptr)) error { return nil }

// Read implements syscall.RawConn.
func (unseen) Read(func(uintptr) bool) error { return nil }

// Write implements syscall.RawConn.
func (unseen) Write(func(uintptr) bool) error { return nil }

// Read implements net.Conn.
func (c *checkedConn) Read(b []byte) (int, error) {
	if len(c.said) > 0 {
		n := copy(b, c.said)
		c.said = c.said[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	if bad := c.replies.check(b[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// Write implements net.Conn.
func (c *checkedConn) Write(b []byte) (int, error) {
	if s := c.replies.sentinel; s != nil {
		s.sent(b)
	}
	if c.hello != nil {
		rest, ok := bytes.CutPrefix(b, clientHello)
		if ok {
			c.said = c.hello
		}
		if c.hello = nil; ok && len(rest) == 0 {
			return len(b), nil
		}
		if ok {
			n, err := c.Conn.Write(rest)
			return len(clientHello) + n, err
		}
	}
	return c.Conn.Write(b)
}

// NetConn returns the connection below, as that of package tls does.
func (c *checkedConn) NetConn() net.Conn { return c.Conn }
