package settling_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// backEnd tries passwords, and tells units in the way of OpenAI. A request with X-Wait is answered once goOn is
// closed.
type backEnd struct {
	address        string
	wrong, waiting atomic.Int64
	goOn           chan struct{}
}

func newBackEnd(t *testing.T) *backEnd {
	b := &backEnd{goOn: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Wait") != "" {
			b.waiting.Add(1)
			<-b.goOn
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("X-Password") == "wrong" {
			b.wrong.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprintf(w, `{"usage":{"prompt_tokens":%s}}`, r.Header.Get("X-Units"))
	}))
	t.Cleanup(server.Close)
	b.address = server.Listener.Addr().String()
	return b
}

// fleetConfig is a Caddyfile with a zone for requests with X-Password and one for those with X-Units.
func fleetConfig(address, store, algorithm, backEnd string) string {
	return fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	storage_clean_interval off
	sliding_window {
		store %s
	}
}
http://%s {
	sliding_window {
		zone logins {
			match header X-Password *
			key {header.X-Key}
			limit 5 15m
			algorithm %[3]s
			count_if status 401
		}
		zone tokens {
			match header X-Units *
			key {header.X-Key}
			limit 10000 15m
			algorithm %[3]s
			cost {header.X-Cost}
			settle usage openai
		}
	}
	respond /look 204
	respond /healthz 204
	reverse_proxy %[4]s {
		stream_close_delay 1m
	}
}
`, store, address, algorithm, backEnd)
}

// client asks the Caddys of a fleet for a key.
type client struct {
	testing.TB
	*http.Client
	addresses []string
	key       string
}

// ask sends a request to a Caddy of the fleet, and returns the status of the answer and what RateLimit
// says is left.
func (c *client) ask(caddy int, path string, header ...string) (status int, left int64) {
	c.Helper()
	url := "http://" + c.addresses[caddy%len(c.addresses)] + path
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		c.Error(err)
		return 0, 0
	}
	req.Header.Set("X-Key", c.key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		c.Error(err)
		return 0, 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if m := remaining.FindStringSubmatch(resp.Header.Get("RateLimit")); m != nil {
		left, _ = strconv.ParseInt(m[1], 10, 64)
	}
	return resp.StatusCode, left
}

var remaining = regexp.MustCompile(`^"[a-z]+";r=(\d+)`)

// left returns how many units of tokens are left, as a Caddy of the fleet sees it.
func (c *client) left(caddy int) int64 {
	_, n := c.ask(caddy, "/look", "X-Units", "0", "X-Cost", "0")
	return n
}

// guess sends 200 wrong log-ins at once, and returns how many answers have which status.
func (c *client) guess() map[int]int {
	statuses := make(map[int]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			status, _ := c.ask(i, "/", "X-Password", "wrong")
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	wg.Wait()
	return statuses
}

// counters returns the times of units in the zset counters of a zone, by the name of the counter.
func counters(t testing.TB, servers []*redistest.Server, zone string) map[string][]int64 {
	t.Helper()
	all := make(map[string][]int64)
	for _, s := range servers {
		redis := s.Client(t)
		for names := redis.Scan(t.Context(), 0, "sw:2-zset:*"+zone+":*", 1000).Iterator(); names.Next(t.Context()); {
			for _, z := range redis.ZRangeWithScores(t.Context(), names.Val(), 0, -1).Val() {
				if z.Score < 1<<50 { // above: how far back the zone looks
					all[names.Val()] = append(all[names.Val()], int64(z.Score))
				}
			}
		}
		_ = redis.Close()
	}
	return all
}

// fleets are stores that three Caddys have in common, each with a line of its own.
var fleets = []struct {
	name    string
	cluster bool
	secrets [3]string
	names   int // of each counter
}{
	{"cluster", true, [3]string{}, 1},
	{"secret that is new to some", false, [3]string{secretOld, secretBoth, secretBoth}, 2},
	{"secret that some have forgotten", false, [3]string{secretNew, secretBoth, secretNew}, 2},
	{"cluster and two secrets", true, [3]string{secretOld, secretBoth, secretBoth}, 2},
}

const (
	secretOld  = "hash_keys former-secret-of-the-fleet"
	secretNew  = "hash_keys newer-secret-of-the-fleet"
	secretBoth = "hash_keys newer-secret-of-the-fleet former-secret-of-the-fleet"
)

// eachFleet runs a test with three Caddys on each of these stores.
func eachFleet(t *testing.T, run func(t *testing.T, c *client, b *backEnd, servers []*redistest.Server, names int)) {
	for _, f := range fleets {
		t.Run(f.name, func(t *testing.T) {
			servers, b := []*redistest.Server(nil), newBackEnd(t)
			var address, cluster string
			if f.cluster {
				servers, cluster = redistest.StartCluster(t, 3), "cluster"
				address = servers[0].Addr + " " + servers[1].Addr
			} else {
				servers = append(servers, redistest.Start(t))
				address = servers[0].Addr
			}
			c := &client{t, caddyrun.NewClient(t), nil, "key"}
			for _, secrets := range f.secrets {
				own := caddyrun.FreeAddress(t)
				c.addresses = append(c.addresses, own)
				store := fmt.Sprintf("redis {\n\t\t\taddress %s\n\t\t\t%s\n\t\t\t%s\n\t\t\ttimeout 10s\n\t\t}", address, cluster, secrets)
				caddyrun.Start(t, fleetConfig(own, store, "zset", b.address), own)
			}
			run(t, c, b, servers, f.names)
		})
	}
}

// 200 parallel wrong log-ins, of which the back end sees exactly 5, whichever Caddy they come to. In a Cluster, the
// names of one key are on two nodes: those that race for the last unit may each get it under one name, and give it
// back. Then it is there for those that come later.
func TestGuessesInFleets(t *testing.T) {
	eachFleet(t, func(t *testing.T, c *client, b *backEnd, servers []*redistest.Server, names int) {
		racy := len(servers) > 1 && names > 1
		for round := range 5 {
			c.key = fmt.Sprint("key ", round)
			before := b.wrong.Load()
			statuses := c.guess()
			tried := b.wrong.Load() - before
			if int64(statuses[401]) != tried || statuses[401]+statuses[429] != 200 || tried > 5 || tried < 5 && !racy {
				t.Errorf("answers by status: %v, and %d were tried, want 5 of 401, 195 of 429 and 5", statuses, tried)
			}
			if tried < 5 { // and no unit is lost
				caddyrun.Eventually(t, 20*time.Second, "all are tried", func() bool {
					c.ask(round, "/", "X-Password", "wrong")
					return b.wrong.Load()-before == 5
				})
				if status, _ := c.ask(round, "/", "X-Password", "wrong"); status != 429 {
					t.Errorf("status %d of one more, want 429", status)
				}
			}
		}
	})
}

// Units are given back at their time: of five log-ins that are under way at once the right ones leave nothing,
// and the wrong ones count from when they came, under each name that a Caddy knows. No key lives on for it.
func TestGivenBackAtTheirTime(t *testing.T) {
	eachFleet(t, func(t *testing.T, c *client, b *backEnd, servers []*redistest.Server, names int) {
		var wg sync.WaitGroup
		for i, password := range []string{"right", "wrong", "right", "right", "wrong"} {
			wg.Go(func() { c.ask(i, "/", "X-Password", password, "X-Wait", "1") })
			caddyrun.Eventually(t, 20*time.Second, "it waits", func() bool { return b.waiting.Load() == int64(i+1) })
			time.Sleep(5 * time.Millisecond) // another time for each
		}
		charged := counters(t, servers, "logins")
		expire := expiries(t, servers, charged)
		if status, _ := c.ask(0, "/", "X-Password", "right"); status != 429 {
			t.Errorf("status %d while 5 are under way, want 429", status)
		}
		close(b.goOn)
		wg.Wait()
		caddyrun.Eventually(t, 20*time.Second, "2 units count", func() bool {
			for _, times := range counters(t, servers, "logins") {
				if len(times) != 2 {
					return false
				}
			}
			return true
		})
		left := counters(t, servers, "logins")
		most := 0
		for name, times := range charged {
			most = max(most, len(times)) // a Caddy with one secret charges under one name
			for _, at := range left[name] {
				if !slices.Contains(times, at) {
					t.Errorf("%s: a unit counts from %d, but those were charged at %v", name, at, times)
				}
			}
		}
		if len(charged) != names || most != 5 {
			t.Errorf("%d counters, of 5 units at most: %v, want %d counters", len(charged), charged, names)
		}
		for name, at := range expiries(t, servers, left) {
			if at > expire[name] {
				t.Errorf("%s expires %d ms later since units were given back", name, at-expire[name])
			}
		}
	})
}

// expiries returns when counters expire.
func expiries(t testing.TB, servers []*redistest.Server, names map[string][]int64) map[string]int64 {
	t.Helper()
	all := make(map[string]int64)
	for _, s := range servers {
		redis := s.Client(t)
		for name := range names {
			if at, err := redis.Do(t.Context(), "PEXPIRETIME", name).Int64(); err == nil && at > 0 { // else another node has it
				all[name] = at
			}
		}
		_ = redis.Close()
	}
	return all
}

// Answers that cost less and more than they reserved, in parallel, leave the sum of what they cost on every
// Caddy of the fleet.
func TestSettledInFleets(t *testing.T) {
	eachFleet(t, func(t *testing.T, c *client, _ *backEnd, _ []*redistest.Server, _ int) {
		var wg sync.WaitGroup
		want := int64(10000)
		for i := range 90 {
			units := []int64{0, 3, 25}[i/3%3]
			want -= units
			wg.Go(func() {
				if status, _ := c.ask(i, "/", "X-Units", strconv.FormatInt(units, 10), "X-Cost", "10"); status != 200 {
					t.Errorf("status %d", status)
				}
			})
		}
		wg.Wait()
		for caddy := range c.addresses {
			caddyrun.Eventually(t, 20*time.Second, fmt.Sprintf("%d units are left at Caddy %d", want, caddy), func() bool { return c.left(caddy) == want })
		}
	})
}

// Right log-ins of one key that come to three Caddys at once deny each other, and ban no key. Wrong ones do.
func TestRightLoginsInFleetsBanNoKey(t *testing.T) {
	server, b := redistest.Start(t), newBackEnd(t)
	c := &client{t, caddyrun.NewClient(t), nil, "key"}
	for range 3 {
		own := caddyrun.FreeAddress(t)
		c.addresses = append(c.addresses, own)
		config := fleetConfig(own, "redis {\n\t\t\taddress "+server.Addr+"\n\t\t\ttimeout 10s\n\t\t}", "zset", b.address)
		caddyrun.Start(t, strings.Replace(config, "count_if status 401", "count_if status 401\n\t\t\tban 1h", 1), own)
	}
	redis := server.Client(t)
	bans := func() int64 { return redis.ZCard(t.Context(), "sw:{bans}:ends").Val() }
	denied := 0
	for round := range 10 {
		c.key = fmt.Sprint("key ", round)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				status, _ := c.ask(i, "/", "X-Password", "right")
				mu.Lock()
				defer mu.Unlock()
				if status == http.StatusTooManyRequests {
					denied++
				}
			})
		}
		wg.Wait()
	}
	c.key = "guesser"
	c.guess()
	caddyrun.Eventually(t, 20*time.Second, "the guesser is banned", func() bool {
		c.ask(0, "/", "X-Password", "wrong")
		return bans() > 0
	})
	if n := bans(); n != 1 {
		t.Errorf("%d keys are banned, want the guesser alone", n)
	}
	if denied == 0 {
		t.Error("no right log-in was denied: the test shows nothing")
	}
}
