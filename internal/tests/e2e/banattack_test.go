package e2e_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/loadtest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// banSite is a site whose zones ban, and clients of it who have addresses.
type banSite struct {
	*testing.T
	address string
	zone    string
	held    *heldBackEnd
	load    func(cpu float64)
}

// The addresses of clients. The first two are in a network of 24 bits with the neighbours.
const (
	attacker = "127.0.0.66"
	victim   = "127.0.0.7"
)

// heldBackEnd is a back end that answers as the path says. Requests for /held wait until letGo.
type heldBackEnd struct {
	*httptest.Server
	arrived atomic.Int64
	mu      sync.Mutex // guards goOn
	goOn    chan struct{}
}

func newHeldBackEnd(t *testing.T) *heldBackEnd {
	b := &heldBackEnd{goOn: make(chan struct{})}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/held":
			b.mu.Lock()
			goOn := b.goOn
			b.mu.Unlock()
			b.arrived.Add(1)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		case "/wrong":
			w.WriteHeader(http.StatusUnauthorized)
		case "/lies":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":1e400,"completion_tokens":0}}`)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

// letGo answers the requests that are held.
func (b *heldBackEnd) letGo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.goOn)
	b.goOn = make(chan struct{})
}

// dial connects from an address.
func (s *banSite) dial(from string) net.Conn {
	s.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request from an address, and returns the status of the answer and whether it speaks of a ban.
func (s *banSite) ask(from, path, body string, header ...string) (status int, banned bool) {
	s.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}
	req, err := http.NewRequest(http.MethodPost, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		s.Error(err)
		return 0, false
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.Contains(string(text), "abnormal-usage-detected")
}

// flood sends n requests, one after the other, and returns how many were denied.
func (s *banSite) flood(n int, from, path, body string, header ...string) (denied int) {
	s.Helper()
	for range n {
		if status, _ := s.ask(from, path, body, header...); status == http.StatusTooManyRequests {
			denied++
		}
	}
	return denied
}

// untilBanned sends requests of the attacker until a ban denies one.
func (s *banSite) untilBanned(path, body string) {
	s.Helper()
	caddyrun.Eventually(s, 20*time.Second, "the attacker is banned", func() bool {
		_, banned := s.ask(attacker, path, body)
		return banned
	})
}

// hold sends requests of an address that the back end does not answer yet, until the end of the case.
func (s *banSite) hold(n int, from, body string, header ...string) {
	s.Helper()
	var group sync.WaitGroup
	s.Cleanup(group.Wait)
	s.Cleanup(s.held.letGo)
	before := s.held.arrived.Load()
	for range n {
		group.Go(func() { s.ask(from, "/held", body, header...) })
	}
	caddyrun.Eventually(s, 20*time.Second, "the requests are held", func() bool { return s.held.arrived.Load() >= before+int64(n) })
}

// hangUp sends n requests that the back end holds, and hangs up.
func (s *banSite) hangUp(n int, from string) {
	s.Helper()
	for range n {
		before := s.held.arrived.Load()
		conn := s.dial(from)
		_, _ = fmt.Fprintf(conn, "POST /held HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", s.address)
		caddyrun.Eventually(s, 20*time.Second, "the request is held", func() bool { return s.held.arrived.Load() > before })
		_ = conn.Close()
	}
}

// began returns how many bans have begun in the zone.
func (s *banSite) began() int {
	n, _ := metricstest.Find(s, metricstest.Of(metrics.BansTotal), "caddy_sliding_window_bans_total", "zone", s.zone, "reason", "denials")
	return int(n)
}

const (
	// banLogins is a zone of wrong passwords that bans at the first denial; ZONE is replaced.
	banLogins = "sliding_window {\nzone ZONE {\nlimit 5 15m\ncount_if status 401\nban 1h\n}\nstore redis REDIS {\ntimeout 5s\n}\n}\nreverse_proxy BACK"
	banTokens = "settle {\nusage openai\nreserve_json max_tokens\n}"
)

// longKey is a key of which a store keeps the digest.
var longKey = strings.Repeat("v", 200)

// No attacker bans another client: the cases are attacks on limits, in front of zones that ban at the first denial. The bans
// that begin are exactly those of the attacker.
func TestNobodyBansAnother(t *testing.T) {
	cpu := 0.4
	step := loadtest.StandIn(t, func() (float64, error) { return cpu, nil }, func() (float64, error) { return 0.1, nil })
	digest := sha256.Sum256([]byte(longKey))
	cases := []struct {
		name, directives string
		global           string // of the server
		attack           func(s *banSite)
		bans             int // that begin: the attacker's
		// What the victim sends after the attack, where it is no plain request.
		from   string
		header []string
	}{
		{
			name: "hanging up before wrong passwords are answered", directives: banLogins, bans: 1,
			attack: func(s *banSite) {
				s.hangUp(5, attacker)
				s.untilBanned("/wrong", "")
			},
		},
		{
			name: "log-ins that are held, from behind one address", directives: banLogins, from: attacker,
			attack: func(s *banSite) {
				s.hold(5, attacker, "")
				if s.flood(20, attacker, "/", "") != 20 {
					s.Error("requests in flight deny no request")
				}
			},
		},
		{
			name: "right log-ins at once, from behind one address", directives: banLogins, from: attacker,
			attack: func(s *banSite) {
				var group sync.WaitGroup
				for range 40 {
					group.Go(func() { s.flood(5, attacker, "/", "") })
				}
				group.Wait()
			},
		},
		{
			name: "heads of log-ins without a body", directives: banLogins, from: attacker,
			attack: func(s *banSite) {
				for range 10 {
					_, _ = fmt.Fprintf(s.dial(attacker), "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 20\r\n\r\n", s.address)
				}
				s.flood(10, attacker, "/", "")
			},
		},
		{
			name: "a reservation of all that everybody has", bans: 0,
			directives: "sliding_window {\nzone ZONE {\nlimit 100000 1m\n" + banTokens + "\nban 1h\n}\nzone ZONE.all {\nkey all\nlimit 100000 1m\n" + banTokens + "\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				s.hold(1, attacker, `{"max_tokens":4999999}`)
				if s.flood(5, victim, "/", `{"max_tokens":50}`) != 5 {
					s.Error("the reservation denies no request")
				}
			},
		},
		{
			name: "a reservation of all that an office has", from: attacker,
			directives: "sliding_window {\nzone ZONE {\nlimit 100000 1m\n" + banTokens + "\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				s.hold(1, attacker, `{"max_tokens":4999999}`, "Upgrade", "x")
				if s.flood(5, attacker, "/", `{"max_tokens":50}`) != 5 {
					s.Error("the reservation denies no request")
				}
			},
		},
		{
			name: "an answer of 1e400 units", bans: 1,
			directives: "sliding_window {\nzone ZONE {\nlimit 1000 1h\n" + banTokens + "\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				s.flood(2, attacker, "/lies", `{"max_tokens":50}`)
				s.untilBanned("/", `{"max_tokens":1}`)
			},
		},
		{
			name: "bodies that are sent slowly", bans: 1,
			directives: "sliding_window {\nzone ZONE {\nlimit 1000 1h\n" + banTokens + "\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				for range 10 {
					_, _ = fmt.Fprintf(s.dial(attacker), "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 260000\r\n\r\n%s", s.address, strings.Repeat("x", 100_000))
				}
				s.untilBanned("/", `{"max_tokens":100}`)
			},
		},
		{
			name:       "load that one client makes",
			directives: "sliding_window {\nzone ZONE {\nlimit 100 1m\nload cpu 70% 95%\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				s.load(1)
				if s.flood(60, victim, "/", "") == 0 {
					s.Error("the load denies no request")
				}
				s.load(0.4)
			},
		},
		{
			name: "a flood in a zone that all share", bans: 1,
			directives: "sliding_window {\nzone ZONE {\nlimit 5 1h\nban 1h\n}\nzone ZONE.all {\nkey all\nlimit 5 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				s.flood(40, attacker, "/", "")
				if s.flood(10, victim, "/", "") != 10 {
					s.Error("the flood denies no request")
				}
			},
		},
		{
			name: "neighbours that fill a network", bans: 1, // of the first: the network denies the other one
			directives: "sliding_window {\nzone ZONE {\nlimit 6 1h\nlimit 10 1h tier 24/48\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				s.flood(30, attacker, "/", "")
				s.flood(30, "127.0.0.67", "/", "")
				if s.flood(5, victim, "/", "") != 5 {
					s.Error("the network denies no request")
				}
			},
		},
		{
			name: "X-Forwarded-For without a trusted proxy", bans: 1,
			directives: "sliding_window {\nzone ZONE {\nlimit 5 1h\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				for _, field := range []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Client-Ip", "Cf-Connecting-Ip"} {
					s.flood(5, attacker, "/", "", field, victim)
				}
			},
		},
		{
			name: "X-Forwarded-For through a trusted proxy", bans: 1, global: "trusted_proxies static 127.0.0.99/32\ntrusted_proxies_strict", from: "127.0.0.99", header: []string{"X-Forwarded-For", "192.0.2.7"},
			directives: "sliding_window {\nzone ZONE {\nlimit 5 1h\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				for _, spelling := range []string{"192.0.2.7", "::ffff:192.0.2.7", "192.0.2.7:80", "192.0.2.7, 127.0.0.99", "192.0.2.07"} {
					s.flood(5, "127.0.0.99", "/", "", "X-Forwarded-For", spelling+", 198.51.100.66")
				}
			},
		},
		{
			name: "keys that look like those of others", bans: 9, header: []string{"X-Key", longKey},
			directives: "sliding_window {\nzone ZONE {\nkey {header.X-Key}\nlimit 2 1h\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				for _, key := range []string{
					longKey[1:], longKey + "v", strings.ToUpper(longKey), base64.RawURLEncoding.EncodeToString(digest[:]), s.zone + " " + longKey,
					"%" + s.zone + " " + base64.RawURLEncoding.EncodeToString(digest[:]), "!" + s.zone + " 0.0.0.0/0", "0.0.0.0/0", "::/0",
				} {
					s.flood(4, attacker, "/", "", "X-Key", key)
				}
			},
		},
		{
			name:       "requests without a key, which all have one counter",
			directives: "sliding_window {\nzone ZONE {\nkey {header.X-Key}\nlimit 2 1h\nban 1h\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				if s.flood(20, attacker, "/", "") == 0 {
					s.Error("the limit denies no request")
				}
			},
		},
		{
			name:       "a key that is required",
			directives: "sliding_window {\nzone ZONE {\nkey {header.X-Key}\nempty_key deny 401\nlimit 2 1h\nban 1h\n}\n}\nreverse_proxy BACK",
			attack:     func(s *banSite) { s.flood(20, attacker, "/", "") },
		},
		{
			name: "a share of the limit while the store is away", from: attacker,
			directives: "sliding_window {\nzone ZONE {\nlimit 5 1h\nban 1h\n}\nstore redis NOWHERE\non_error local {\nshare\n}\n}\nreverse_proxy BACK",
			attack: func(s *banSite) {
				if s.flood(20, attacker, "/", "") == 0 {
					s.Error("the share denies no request")
				}
			},
		},
	}
	held, redisAddr := newHeldBackEnd(t), redistest.Start(t).Addr
	sites := make([]*banSite, len(cases))
	var servers, all strings.Builder
	for i, c := range cases {
		s := &banSite{address: caddyrun.FreeAddress(t), zone: fmt.Sprintf("banattack.%d", i), held: held}
		s.load = func(c float64) {
			cpu = c
			step(21)
		}
		if c.global != "" {
			fmt.Fprintf(&servers, "servers %s {\n%s\n}\n", s.address, c.global)
		}
		_, port, _ := net.SplitHostPort(s.address)
		fmt.Fprintf(&all, "http://:%s {\nbind 127.0.0.1\nroute {\n%s\n}\n}\n", port, strings.NewReplacer(
			"ZONE", s.zone, "BACK", held.Listener.Addr().String(), "REDIS", "redis://"+redisAddr, "NOWHERE", "redis://"+caddyrun.FreeAddress(t)).Replace(c.directives))
		sites[i] = s
	}
	if err := loadCaddy("{\nadmin off\npersist_config off\nauto_https off\nstorage_clean_interval off\nlog {\noutput discard\n}\n" + servers.String() + "}\n" + all.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	step(21)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := sites[i]
			s.T = t
			before := s.began() // of former runs
			c.attack(s)
			if strings.Contains(c.directives, "store redis") {
				time.Sleep(300 * time.Millisecond) // longer than a denial waits to be a strike, and a strike for others
			}
			from := c.from
			if from == "" {
				from = victim
			}
			if _, banned := s.ask(from, "/", "", c.header...); banned {
				t.Error("the victim is banned")
			}
			if n := s.began() - before; n != c.bans {
				t.Errorf("%d bans began, want %d", n, c.bans)
			}
		})
	}
}
