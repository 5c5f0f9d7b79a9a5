package redis

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// connecting returns how long a connection may take to be made, with all that servers are
// told first. Requests do not wait for it: their timeout ends their wait, and the connection
// is there for those that follow. A connection takes four round trips at most, one for TCP,
// two for TLS and one for the greeting, and a call that fits into timeout takes one.
func (o Options) connecting() time.Duration { return max(4*o.Timeout, time.Second) }

// tasks run apart from requests, until they are closed.
type tasks struct {
	mu     sync.Mutex // guards closed, and the group's changes from none to one
	closed bool
	group  sync.WaitGroup
}

// run has f run at some time. It reports false, and does not run f, once the tasks are closed.
func (t *tasks) run(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.group.Go(f)
	}
	return !t.closed
}

// close returns when all that runs has ended.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.group.Wait()
}

// background holds tasks that end with the store.
type background struct {
	tasks
	ctx  context.Context // ends with the store
	stop context.CancelFunc
}

func newBackground() *background {
	b := new(background)
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// close ends what runs, and returns when it has ended.
func (b *background) close() {
	b.stop()
	b.tasks.close()
}

// greeter is a hook of the client of one server. It tells a new connection who the user is
// and which database to use before the client has the connection: the client would do so
// within the time of the request that happens to be the first.
//
// The client still says HELLO, without a password. That is answered with what the server said
// to the greeter.
type greeter struct {
	username, password string
	db                 int
	ctx                context.Context // ends with the store
	met                func(hello)     // is told what the server says of itself
	trip               *trip
}

// DialHook implements goredis.Hook. The pool of the client dials apart from requests, with a
// time of its own.
func (g greeter) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := next(ctx, network, address)
		if err != nil {
			return nil, unwritten{err}
		}
		end, _ := ctx.Deadline() // zero: none
		_ = conn.SetDeadline(end)
		stop := context.AfterFunc(g.ctx, func() { _ = conn.Close() })
		said, err := g.greet(conn)
		if !stop() && err == nil {
			err = goredis.ErrClosed
		}
		if err != nil {
			_ = conn.Close()
			return nil, unwritten{err}
		}
		_ = conn.SetDeadline(time.Time{})
		if c, ok := conn.(interface{ greeted([]byte) }); ok {
			c.greeted(said)
		}
		return conn, nil
	}
}

// ProcessHook implements goredis.Hook.
func (greeter) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements goredis.Hook.
func (greeter) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// greet logs in and selects the database. It returns the reply to HELLO.
//
// The calls are those that the client would make: a server that does not know HELLO, or not
// this version of the protocol, gets AUTH, and is talked to in the older one.
func (g greeter) greet(conn net.Conn) (said []byte, err error) {
	r := bufio.NewReader(conn)
	ask := func(commands ...[]string) (replies [][]byte, err error) {
		var b []byte
		for _, args := range commands {
			b = appendCommand(b, args)
		}
		if _, err := conn.Write(b); err != nil {
			return nil, err
		}
		for range commands {
			reply, err := readReply(r, nil)
			if err != nil {
				return nil, err
			}
			replies = append(replies, reply)
		}
		return replies, nil
	}
	first := []string{"hello", "3"}
	auth := []string{"auth"}
	if g.password != "" {
		user := "default"
		if g.username != "" {
			user = g.username
			auth = append(auth, user)
		}
		first = append(first, "auth", user, g.password)
		auth = append(auth, g.password)
	}
	rest := [][]string{}
	if g.db > 0 {
		rest = append(rest, []string{"select", strconv.Itoa(g.db)})
	}
	start := time.Now()
	replies, err := ask(append([][]string{first}, rest...)...)
	if err != nil {
		return nil, err
	}
	g.trip.guess(time.Since(start))
	said = replies[0]
	if refusalOf(said) == nil {
		g.met(parseHello(said))
	} else {
		said = []byte("-ERR no HELLO\r\n") // the server's words may hold the password
		if g.password != "" {
			if replies, err = ask(append([][]string{auth}, rest...)...); err != nil {
				return nil, err
			}
			if err := refusalOf(replies[0]); err != nil {
				return nil, err
			}
		}
	}
	for _, reply := range replies[1:] {
		if err := refusalOf(reply); err != nil {
			return nil, err
		}
	}
	if r.Buffered() > 0 {
		return nil, errReply
	}
	return said, nil
}

// refusal is the error that a server answered with.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError implements goredis.Error.
func (refusal) RedisError() {}

// refusalOf returns the error that a reply is, or nil.
func refusalOf(reply []byte) error {
	text, ok := bytes.CutPrefix(reply, []byte("-"))
	if !ok {
		if text, ok = bytes.CutPrefix(reply, []byte("!")); ok {
			_, text, _ = bytes.Cut(text, []byte("\r\n"))
		}
	}
	if !ok {
		return nil
	}
	return refusal(strings.TrimRight(string(text), "\r\n"))
}

func appendCommand(b []byte, args []string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, arg := range args {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(arg)), 10), "\r\n"...)
		b = append(append(b, arg...), "\r\n"...)
	}
	return b
}

// readReply appends a reply, in RESP2 or RESP3. Its lengths were checked: see checkedConn.
func readReply(r *bufio.Reader, b []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < len("+\r\n") {
		return nil, errReply
	}
	b = append(b, line...)
	kind := line[0]
	n, items := 0, 1
	switch kind {
	case '$', '=', '!', '*', '~', '>', '%', '|':
		if n, err = length(bytes.TrimRight(line[1:], "\r\n"), replyText); err != nil {
			return nil, err
		}
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return b, nil
		}
		text := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return append(b, text...), nil
	case '%':
		items = 2
	case '*', '~', '>':
	case '|': // attributes, and then what they belong to
		items = 2
	default:
		return b, nil
	}
	n *= items
	if kind == '|' {
		n++
	}
	for range max(n, 0) {
		if b, err = readReply(r, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// hello is what a server says of itself.
type hello struct{ server, version, mode string }

// parseHello reads a reply to HELLO, of which all is optional.
func parseHello(reply []byte) (h hello) {
	r := bufio.NewReader(bytes.NewReader(reply))
	if line, _ := r.ReadString('\n'); !strings.HasPrefix(line, "%") {
		return h
	}
	for {
		name, err := readReply(r, nil)
		if err != nil {
			return h
		}
		value, err := readReply(r, nil)
		if err != nil {
			return h
		}
		switch textOf(name) {
		case "server":
			h.server = textOf(value)
		case "version":
			h.version = textOf(value)
		case "mode":
			h.mode = textOf(value)
		}
	}
}

// met notes what a server says of itself.
func (s *Store) met(h hello) { s.server.Store(&h) }

// textOf returns the text that a reply is, or nothing.
func textOf(reply []byte) string {
	head, text, _ := bytes.Cut(reply, []byte("\r\n"))
	if len(head) == 0 || head[0] != '$' {
		return ""
	}
	return string(bytes.TrimSuffix(text, []byte("\r\n")))
}
