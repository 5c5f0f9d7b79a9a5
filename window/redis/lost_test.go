package redis_test

import (
	"errors"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestReplyLost cuts connections when the reply comes: it is unknown whether the
// request was charged, so it must not be sent again.
func TestReplyLost(t *testing.T) {
	for name, cluster := range map[string]bool{"one server": false, "a Cluster": true} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t)
			if cluster {
				startBehind(t, p)
			} else {
				p.target.Store(&redistest.Start(t).Addr)
			}
			s := newStore(t, redis.Options{Addresses: []string{p.addr}, Cluster: cluster, Prefix: "lost", Timeout: time.Second})
			warm(t, s, "key")
			for i := range 10 {
				one, two := countedCharge("take", strconv.Itoa(i)), countedCharge("batch", strconv.Itoa(i))
				p.cut.Store(true)
				if _, err := s.Take(t.Context(), []window.Charge{one}); !errors.Is(err, window.ErrUnavailable) {
					t.Errorf("Take = %v, want ErrUnavailable", err)
				}
				if r := s.TakeBatch(t.Context(), [][]window.Charge{{two}, {two}}); !errors.Is(r[0].Err, window.ErrUnavailable) {
					t.Errorf("TakeBatch = %v, want ErrUnavailable", r[0].Err)
				}
				p.cut.Store(false)
			}
			eventually(t, back, "a decision when replies come again", func() bool { return s.Ping(t.Context()) == nil })
			lost := int64(0)
			for i := range 10 {
				for zone, most := range map[string]int64{"take": 1, "batch": 2} {
					n := charged(t, s, countedCharge(zone, strconv.Itoa(i)))
					if lost += n; n > most {
						t.Errorf("zone %s: charged %d times, want %d at most", zone, n, most)
					}
				}
			}
			if lost == 0 {
				t.Error("no request was charged: its reply cannot have been lost")
			}
		})
	}
}

// TestLostAfterRefusal loses the replies to calls that a server has refused before: they
// are not made again, for they may have been charged, and their errors say so.
func TestLostAfterRefusal(t *testing.T) {
	lose := func(t *testing.T, p *proxy, s *redis.Store, requests [][]window.Charge) {
		t.Helper()
		p.cut.Store(true)
		results := s.TakeBatch(t.Context(), requests)
		p.cut.Store(false)
		eventually(t, back, "a decision when replies come again", func() bool { return s.Ping(t.Context()) == nil })
		lost := 0
		for i, r := range results {
			switch n := charged(t, s, requests[i][0]); {
			case n > 1:
				t.Errorf("request %d was charged %d times", i, n)
			case n == 1 && r.Err != nil:
				if lost++; !errors.Is(r.Err, window.ErrUnknown) {
					t.Errorf("request %d was charged, and failed with %v, want ErrUnknown", i, r.Err)
				}
			}
		}
		if lost == 0 {
			t.Error("no request was charged: its reply cannot have been lost")
		}
	}
	t.Run("NOSCRIPT", func(t *testing.T) {
		p := startProxy(t)
		p.target.Store(&redistest.Start(t).Addr)
		s := newStore(t, redis.Options{Addresses: []string{p.addr}, Prefix: "refused", Timeout: time.Second})
		var requests [][]window.Charge
		for i := range 300 { // several calls
			requests = append(requests, []window.Charge{countedCharge("zone", strconv.Itoa(i))})
		}
		lose(t, p, s, requests)
	})
	ask := func(t *testing.T, loaded bool) {
		one, p := redistest.Start(t, "--cluster-enabled", "yes"), startProxy(t)
		if err := one.OwnAllSlots(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := startNodeBehind(t, p)
		redistest.Join(t, other, one)
		s := newStore(t, redis.Options{Addresses: []string{one.Addr}, Cluster: true, Prefix: "refused", Timeout: time.Second})
		request := []window.Charge{countedCharge("zone", "a"), countedCharge("zone", "b")}
		for _, c := range request {
			defer moveSlot(t, []*redistest.Server{one, other}, "refused:2-slices:zone:"+c.Key)()
		}
		take(t, s, charge("loads", "the script", 1, time.Hour))
		if loaded {
			for _, script := range []string{lua.Script, lua.Instances} {
				if err := other.Client(t).ScriptLoad(t.Context(), script).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		lose(t, p, s, [][]window.Charge{request})
	}
	t.Run("ASK", func(t *testing.T) { ask(t, true) })
	t.Run("ASK and NOSCRIPT", func(t *testing.T) { ask(t, false) })
}

// countedCharge is a charge with slices: unlike units of zset, which have names,
// these are counted again if the same request comes twice.
func countedCharge(zone, key string) window.Charge {
	c := charge(zone, key, 100, time.Hour)
	c.Algorithm = window.Slices{}
	return c
}

// charged returns what has been spent on the counter of c.
func charged(t *testing.T, s *redis.Store, c window.Charge) int64 {
	t.Helper()
	ds, err := s.Peek(t.Context(), []window.Charge{c})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0].Limit - ds[0].Remaining
}

// proxy connects a client with a server. With cut, it passes requests on, and hangs up when
// the reply of a script comes. It calls onReply once, before it passes such a reply on.
type proxy struct {
	addr    string
	target  atomic.Pointer[string]
	cut     atomic.Bool
	lose    atomic.Bool // hangs up as with cut, once, and after onReply
	onReply atomic.Pointer[func()]
	turns   atomic.Int64 // how often the server was asked, once it had answered

	mu   sync.Mutex // guards open
	open map[net.Conn]bool
}

// hangUp closes all connections.
func (p *proxy) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *proxy) note(c net.Conn, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = make(map[net.Conn]bool)
	}
	p.open[c] = true
	if !open {
		delete(p.open, c)
	}
}

// startBehind runs a Cluster of one server behind a proxy.
func startBehind(t *testing.T, p *proxy) *redistest.Server {
	own := startNodeBehind(t, p)
	if err := own.OwnAllSlots(t.Context()); err != nil {
		t.Fatal(err)
	}
	return own
}

// startNodeBehind runs a node without slots behind a proxy.
func startNodeBehind(t *testing.T, p *proxy) *redistest.Server {
	_, port, _ := net.SplitHostPort(p.addr)
	node := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port)
	p.target.Store(&node.Addr)
	return node
}

// scriptReply is how the reply of the script begins, behind that of ASKING, too.
var scriptReply = regexp.MustCompile(`^(\+OK\r\n)?\*\d+\r\n:`)

func startProxy(t *testing.T) *proxy {
	p := new(proxy)
	p.addr = listen(t, p.serve)
	return p
}

func (p *proxy) serve(client net.Conn) {
	p.note(client, true)
	defer p.note(client, false)
	server, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		return
	}
	done := make(chan struct{})
	var answered atomic.Bool
	go func() {
		defer close(done)
		defer func() { _ = server.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if answered.Swap(false) {
				p.turns.Add(1)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	defer func() { <-done }()
	defer func() { _ = client.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil || p.cut.Load() && scriptReply.Match(buf[:n]) {
			return
		}
		if scriptReply.Match(buf[:n]) {
			if f := p.onReply.Swap(nil); f != nil {
				(*f)()
			}
			if p.lose.Swap(false) {
				return
			}
		}
		answered.Store(true)
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
