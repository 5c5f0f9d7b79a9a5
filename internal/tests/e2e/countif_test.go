package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// panicked is how often the directive panics has.
var panicked atomic.Int64

func init() {
	registerDirective("panics", func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error {
		panicked.Add(1)
		panic(http.ErrAbortHandler)
	})
}

// login is a back end: X-Password says whether a log-in is right. One with X-Wait is answered once
// the channel of that name is closed.
type login struct {
	*httptest.Server
	asked, wrong, waiting atomic.Int64
	answer                chan struct{}
}

func newLogin(t *testing.T) *login {
	l := &login{answer: make(chan struct{})}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		if r.Header.Get("X-Wait") != "" {
			l.waiting.Add(1)
			<-l.answer
		}
		if r.Header.Get("X-Password") != "right" {
			l.wrong.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(l.Server.Close)
	return l
}

// logins is a Caddyfile with a limit of 5 wrong log-ins of an X-Key in 15 minutes.
func logins(address, store, countIf, handlers string) string {
	return fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
	sliding_window {
		store %s
	}
}
http://%s {
	route {
		sliding_window {
			zone logins {
				key {header.X-Key}
				limit 5 15m
				count_if %s
			}
		}
		%s
	}
	handle_errors 401 {
		respond "who are you?" 403
	}
}
`, store, address, countIf, handlers)
}

// logIn returns the status of an answer, or 0 without an answer.
func logIn(client *http.Client, address, key string, header ...string) (status int, retryAfter string) {
	req, _ := http.NewRequest(http.MethodPost, "http://"+address+"/", nil)
	req.Header.Set("X-Key", key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// guess sends 200 wrong log-ins at once, in turn to the addresses, and returns how many answers
// have which status.
func guess(t *testing.T, addresses ...string) map[int]int {
	client, key := caddyrun.NewClient(t), rand.Text()
	statuses := make(map[int]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			status, _ := logIn(client, addresses[i%len(addresses)], key, "Authorization", "Basic YW5uYTp3cm9uZw==")
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	wg.Wait()
	return statuses
}

// eachLoginStore runs a test with each store.
func eachLoginStore(t *testing.T, run func(t *testing.T, store string, redis *goredis.Client)) {
	t.Cleanup(func() { _ = caddy.Stop() })
	t.Run("memory", func(t *testing.T) { run(t, "memory", nil) })
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		run(t, "redis redis://"+server.Addr+" {\n\t\t\ttimeout 5s\n\t\t}", server.Client(t))
	})
}

// 200 parallel wrong log-ins, of which exactly 5 are tried, whoever answers them.
func TestParallelGuesses(t *testing.T) {
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		l := newLogin(t)
		for name, c := range map[string]struct {
			handlers, countIf string
			status            int
			tried             *atomic.Int64
		}{
			"reverse_proxy": {"reverse_proxy " + l.Listener.Addr().String(), "status 401", 401, &l.wrong},
			"basic_auth":    {"basic_auth {\n\t\t\tanna $2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n\t\t}", "status 401", 403, nil},
			"respond":       {"respond 401", "status 4xx", 401, nil},
			"error":         {"error 401", "{\n\t\t\t\t\tstatus 401 403\n\t\t\t\t}", 403, nil},
			"header":        {"header X-Login failed\n\t\trespond 200", "header X-Login failed", 200, nil},
			"panic":         {"panics", "status 401 5xx", 0, &panicked},
		} {
			t.Run(name, func(t *testing.T) {
				address := caddyrun.FreeAddress(t)
				if err := loadCaddy(logins(address, store, c.countIf, c.handlers)); err != nil {
					t.Fatal(err)
				}
				var before int64
				if c.tried != nil {
					before = c.tried.Load()
				}
				statuses := guess(t, address)
				if statuses[c.status] != 5 || statuses[429] != 195 {
					t.Errorf("answers by status: %v, want 5 of %d and 195 of 429", statuses, c.status)
				}
				if c.tried != nil && c.tried.Load()-before != 5 {
					t.Errorf("%d were tried, want 5", c.tried.Load()-before)
				}
			})
		}
	})
}

// The same with three Caddys.
func TestParallelGuessesInAFleet(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	server, l := redistest.Start(t), newLogin(t)
	store := "redis redis://" + server.Addr + " {\n\t\t\ttimeout 10s\n\t\t}"
	var addresses []string
	for range 3 {
		address := caddyrun.FreeAddress(t)
		addresses = append(addresses, address)
		text := strings.Replace(logins(address, store, "status 401", "reverse_proxy "+l.Listener.Addr().String()), "admin off", "admin {admin}", 1)
		caddyrun.Start(t, text, address)
	}
	before := l.wrong.Load()
	if statuses := guess(t, addresses...); statuses[401] != 5 || l.wrong.Load()-before != 5 {
		t.Errorf("answers by status: %v, and %d were tried, want 5", statuses, l.wrong.Load()-before)
	}
}

// 10,000 right log-ins come beside wrong ones, at once up to what the limit leaves. No right one is
// denied or counts. The sixth wrong one is denied.
func TestRightLogins(t *testing.T) {
	eachLoginStore(t, func(t *testing.T, store string, redis *goredis.Client) {
		l, address := newLogin(t), caddyrun.FreeAddress(t)
		if err := loadCaddy(logins(address, store, "status 401", "reverse_proxy "+l.Listener.Addr().String())); err != nil {
			t.Fatal(err)
		}
		client, key := caddyrun.NewClient(t), rand.Text()
		right := func(clients, each int) {
			t.Helper()
			var wg sync.WaitGroup
			var stalls atomic.Int64
			for range clients {
				wg.Go(func() {
					for range each {
						begin := time.Now()
						status, _ := logIn(client, address, key, "X-Password", "right")
						if status == 429 && time.Since(begin) > 250*time.Millisecond && stalls.Add(1) < 10 {
							continue // no request waits longer for a unit to come back, and this machine stood still
						}
						if status != 200 {
							t.Errorf("status %d for a right log-in after %v, want 200", status, time.Since(begin))
							return
						}
					}
				})
			}
			wg.Wait()
		}
		wrong := func(want int) {
			t.Helper()
			if status, _ := logIn(client, address, key); status != want {
				t.Errorf("status %d for a wrong log-in, want %d", status, want)
			}
		}
		wrong(401)
		wrong(401)
		right(3, 3000)
		wrong(401)
		wrong(401)
		right(1, 1000)
		if redis != nil {
			caddyrun.Eventually(t, 20*time.Second, "4 units count", func() bool { return zsetUnits(redis, key) == 4 })
		}
		wrong(401)
		wrong(429)
	})
}

// zsetUnits returns how many units a zset counter of the zone has.
func zsetUnits(redis *goredis.Client, key string) (n int64) {
	for _, member := range redis.ZRangeWithScores(context.Background(), "sw:2-zset:logins:"+key, 0, -1).Val() {
		if member.Score < 1<<50 { // above: how far back the zone looks
			n++
		}
	}
	return n
}

// While a log-in is under way that may be a right one, a denial says that it holds for a second.
func TestRetryAfterInFlight(t *testing.T) {
	eachLoginStore(t, func(t *testing.T, store string, _ *goredis.Client) {
		l, address := newLogin(t), caddyrun.FreeAddress(t)
		if err := loadCaddy(logins(address, store, "status 401", "reverse_proxy "+l.Listener.Addr().String())); err != nil {
			t.Fatal(err)
		}
		client, key := caddyrun.NewClient(t), rand.Text()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { logIn(client, address, key, "X-Wait", "1") })
		}
		caddyrun.Eventually(t, 20*time.Second, "5 wait", func() bool { return l.waiting.Load() == 5 })
		if status, after := logIn(client, address, key); status != 429 || after != "1" {
			t.Errorf("while 5 wait: %d, Retry-After %s, want 429 and 1", status, after)
		}
		close(l.answer)
		wg.Wait()
		if status, after := logIn(client, address, key); status != 429 || len(after) != 3 {
			t.Errorf("when 5 were wrong: %d, Retry-After %s, want 429 and some 900", status, after)
		}
	})
}

// Redis is killed, hangs or comes back between decision and settlement. In the end Redis counts the
// wrong log-ins, and at most the number that the log and the metric tell in addition.
func TestSettleInOutages(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	start := func(t *testing.T) (server *redistest.Server, l *login, send func(wrong, right int) (end func())) {
		server, l = redistest.Start(t), newLogin(t)
		address, key := caddyrun.FreeAddress(t), "key"
		if err := loadCaddy(logins(address, "redis redis://"+server.Addr, "status 401", "reverse_proxy "+l.Listener.Addr().String())); err != nil {
			t.Fatal(err)
		}
		client := caddyrun.NewClient(t)
		caddyrun.Eventually(t, 20*time.Second, "Redis decides", func() bool {
			logIn(client, address, "warm")
			return zsetUnits(server.Client(t), "warm") > 0
		})
		return server, l, func(wrong, right int) func() {
			t.Helper()
			var wg sync.WaitGroup
			before := l.waiting.Load()
			for i := range wrong + right {
				password := "right"
				if i < wrong {
					password = "wrong"
				}
				wg.Go(func() {
					if status, _ := logIn(client, address, key, "X-Wait", "1", "X-Password", password); status != 200 && status != 401 {
						t.Errorf("status %d", status)
					}
				})
			}
			caddyrun.Eventually(t, 20*time.Second, "all wait", func() bool { return l.waiting.Load()-before == int64(wrong+right) })
			return func() {
				close(l.answer)
				wg.Wait()
			}
		}
	}
	t.Run("hung", func(t *testing.T) {
		server, _, send := start(t)
		end := send(2, 3)
		server.Stop()
		end()
		time.Sleep(300 * time.Millisecond) // longer than the timeout of the store
		server.Cont()
		redis := server.Client(t)
		caddyrun.Eventually(t, 20*time.Second, "Redis answers", func() bool { return redis.Ping(t.Context()).Err() == nil })
		time.Sleep(2 * time.Second)
		if n := zsetUnits(redis, "key"); n < 2 || n > 5 {
			t.Errorf("%d units count, want 2, and 3 more at most whose answer was lost", n)
		}
	})
	t.Run("away at the settlement", func(t *testing.T) {
		server, _, send := start(t)
		end := send(2, 3)
		server.Kill()
		end()
		server.Restart(t)
		time.Sleep(2 * time.Second)
		if n := zsetUnits(server.Client(t), "key"); n > 2 {
			t.Errorf("%d units count, want 2 at most: Redis may have lost them", n)
		}
	})
	t.Run("away at the decision", func(t *testing.T) {
		server, _, send := start(t)
		server.Kill()
		end := send(2, 3)
		server.Restart(t)
		redis := server.Client(t)
		time.Sleep(2 * time.Second)
		if n := zsetUnits(redis, "key"); n != 0 {
			t.Errorf("%d units count before the answers, want none", n)
		}
		end()
		caddyrun.Eventually(t, 20*time.Second, "2 units count", func() bool { return zsetUnits(redis, "key") == 2 })
	})
}

// A reload replaces the store while an answer is under way. It is settled all the same.
func TestSettleOverAReload(t *testing.T) {
	t.Cleanup(func() { _ = caddy.Stop() })
	server, l, address := redistest.Start(t), newLogin(t), caddyrun.FreeAddress(t)
	redis := server.Client(t)
	load := func(timeout string) {
		t.Helper()
		store := fmt.Sprintf("redis redis://%s {\n\t\t\ttimeout %s\n\t\t}", server.Addr, timeout)
		if err := loadCaddy(logins(address, store, "status 401", "reverse_proxy "+l.Listener.Addr().String()+" {\n\t\t\tstream_close_delay 1m\n\t\t}")); err != nil {
			t.Fatal(err)
		}
	}
	load("5s")
	client := caddyrun.NewClient(t)
	var wg sync.WaitGroup
	for _, password := range []string{"right", "right", "wrong"} {
		wg.Go(func() { logIn(client, address, "key", "X-Wait", "1", "X-Password", password) })
	}
	caddyrun.Eventually(t, 20*time.Second, "all wait", func() bool { return l.waiting.Load() == 3 })
	if n := zsetUnits(redis, "key"); n != 3 {
		t.Errorf("%d units count, want 3", n)
	}
	load("6s")
	time.Sleep(7 * time.Second) // longer than a store lingers that no receipt holds
	close(l.answer)
	wg.Wait()
	caddyrun.Eventually(t, 20*time.Second, "1 unit counts", func() bool { return zsetUnits(redis, "key") == 1 })
}
