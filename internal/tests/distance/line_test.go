package distance_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// line connects a store with a server that is far away. What it passes on arrives half a
// round trip later. The first bytes of a connection take a whole one more: the kernel accepts
// a connection at once, which a server so far away does not.
type line struct {
	addr        string
	target      string
	connections atomic.Int64
	broken      atomic.Bool // the server could not be reached
	half        time.Duration
	listener    net.Listener
	mu          sync.Mutex // guards conns
	conns       []net.Conn
	work        sync.WaitGroup
}

// listenFar listens, for serve to pass on what comes.
func listenFar(t *testing.T, roundTrip time.Duration) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{addr: listener.Addr().String(), listener: listener, half: roundTrip / 2}
	t.Cleanup(l.close)
	return l
}

func startLine(t *testing.T, target string, roundTrip time.Duration) *line {
	t.Helper()
	l := listenFar(t, roundTrip)
	l.serve(target)
	return l
}

func (l *line) serve(target string) {
	l.target = target
	l.work.Go(func() {
		for {
			conn, err := l.listener.Accept()
			if err != nil {
				return
			}
			l.connections.Add(1)
			l.work.Go(func() { l.join(conn) })
		}
	})
}

func (l *line) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.work.Wait()
}

func (l *line) join(client net.Conn) {
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		l.broken.Store(true)
		_ = client.Close()
		return
	}
	l.mu.Lock()
	l.conns = append(l.conns, client, server)
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pass(server, client, 2*l.half) })
	both.Go(func() { l.pass(client, server, 0) })
	both.Wait()
}

// pass copies until one side ends, then ends both. Bytes do not wait for those before them to
// arrive.
func (l *line) pass(to, from net.Conn, first time.Duration) {
	type part struct {
		due  time.Time
		data []byte
	}
	parts := make(chan part, 1024)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(parts)
		open := time.Now().Add(first)
		for {
			buf := make([]byte, 64<<10)
			n, err := from.Read(buf)
			if n > 0 {
				due := time.Now()
				if due.Before(open) {
					due = open
				}
				parts <- part{due.Add(l.half), buf[:n]}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range parts {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range parts {
	}
	reader.Wait()
}
