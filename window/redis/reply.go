package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Bounds of a reply. The client allocates the length that a reply announces before the rest
// of the reply arrives, and reads nested lists by recursion: without bounds, a server that
// lies could crash this process. The longest reply to a command is CLUSTER SLOTS.
const (
	replyLine  = 1 << 16 // bytes
	replyText  = 1 << 20 // bytes
	replyItems = 1 << 16 // of one list
	replyDepth = 16      // of lists in lists
)

var errReply = ownError("the reply is malformed or too long")

// dialer returns a function that connects as the client does, and ends connections
// on which replies are too long. With sentinels, servers may be such.
func dialer(timeout time.Duration, encrypt *tls.Config, sentinels bool) func(context.Context, string, string) (net.Conn, error) {
	dial := goredis.NewDialer(&goredis.Options{DialTimeout: timeout, TLSConfig: encrypt})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		checked := &checkedConn{Conn: conn}
		if sentinels {
			checked.replies.sentinel = new(sentinel)
		}
		plain, ok := conn.(syscall.Conn)
		if !ok {
			return checked, nil
		}
		socket, err := plain.SyscallConn()
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return checkedSocket{checked, socket}, nil
	}
}

// checkedConn is a connection that fails where a reply is too long.
type checkedConn struct {
	net.Conn
	replies replies
	hello   []byte // what answers the client's HELLO, if it comes first; see greeter
	said    []byte // of that, what the client has not read yet
}

// clientHello is what the client begins a connection with.
var clientHello = appendCommand(nil, []string{"hello", "3"})

// greeted has the connection answer the client's HELLO by itself.
func (c *checkedConn) greeted(reply []byte) { c.hello = reply }

// checkedSocket is one of which the client can look at the socket. It does so each
// time that it takes the connection out of its pool.
type checkedSocket struct {
	*checkedConn
	socket syscall.RawConn
}

// SyscallConn implements syscall.Conn.
func (c checkedSocket) SyscallConn() (syscall.RawConn, error) { return c.socket, nil }

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

// replies follows a stream of replies, in RESP2 or RESP3, for their lengths.
type replies struct {
	line  []byte // the part of a line that has come
	skip  int    // bytes of a text that are still to come
	lists [replyDepth]list
	depth int

	sentinel *sentinel // nil: the connection is not to a Sentinel
}

// list is a list that is not complete.
type list struct {
	left      int
	attribute bool // precedes an item, and does not count as one
}

// check reads on.
func (r *replies) check(b []byte) error {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			if r.sentinel != nil {
				r.sentinel.reads(b[:n])
			}
			b = b[n:]
			if r.skip -= n; r.skip > 0 {
				continue
			}
			if r.sentinel != nil {
				if err := r.sentinel.ends(); err != nil {
					return err
				}
			}
			r.item()
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		part := b
		if end > 0 {
			part = b[:end]
		}
		if len(r.line)+len(part) > replyLine {
			return errReply
		}
		r.line = append(r.line, part...)
		b = b[len(part):]
		if end == 0 {
			return nil
		}
		err := r.head(r.line)
		if r.line = r.line[:0]; err != nil {
			return err
		}
	}
	return nil
}

// head reads the line that an item begins with.
func (r *replies) head(line []byte) error {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) == 0 {
		return errReply
	}
	if r.sentinel != nil {
		if err := r.sentinel.begins(line, r.depth); err != nil {
			return err
		}
	}
	pairs := 1
	switch line[0] {
	case '$', '=', '!':
		n, err := length(line[1:], replyText)
		if n < 0 || err != nil {
			r.item()
			return err
		}
		r.skip = n + len("\r\n")
		return nil
	case '%', '|':
		pairs = 2
	case '*', '~', '>':
	default:
		r.item()
		return nil
	}
	n, err := length(line[1:], replyItems)
	attribute := line[0] == '|'
	switch {
	case err != nil:
		return err
	case n <= 0 && !attribute:
		r.item()
	case n <= 0:
	case r.depth == replyDepth:
		return errReply
	default:
		r.lists[r.depth] = list{pairs * n, attribute}
		r.depth++
	}
	return nil
}

// length reads a length of at most `most`; -1 is the length of a null.
func length(text []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < -1 || n > most {
		return 0, errReply
	}
	return n, nil
}

// item notes that an item is complete, and with it maybe the lists that it is in.
func (r *replies) item() {
	for r.depth > 0 {
		top := &r.lists[r.depth-1]
		if top.left--; top.left > 0 {
			return
		}
		r.depth--
		if top.attribute {
			return
		}
	}
}
