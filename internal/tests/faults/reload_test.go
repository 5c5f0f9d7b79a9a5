package faults_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
)

// oneSite is a Caddyfile with one site that has a limit, and one that has none.
func (s *sites) oneSite(store, onError, limit string) string {
	return fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	metrics
	sliding_window {
		store %s
		on_error %s
	}
}
http://%s {
	handle / {
		sliding_window deny {header.X-Key} %s
		respond ok
	}
}
http://%s {
	respond ok
}
`, store, onError, s.address["deny"], limit, s.address[free])
}

// startOne serves one site.
func startOne(t *testing.T, store, onError, limit string) *sites {
	t.Helper()
	s := &sites{T: t, address: map[string]string{"deny": caddyrun.FreeAddress(t), free: caddyrun.FreeAddress(t)}}
	s.caddy = caddyrun.Start(t, s.oneSite(store, onError, limit), slices.Collect(maps.Values(s.address))...)
	s.client = caddyrun.NewClient(t)
	return s
}

// storeWithin is a server as a store with a timeout.
func storeWithin(r *remote, timeout time.Duration) string {
	return fmt.Sprintf("redis redis://%s:%s@%s {\n\t\t\ttimeout %s\n\t\t}", user, password, r.server.Addr, timeout)
}

// patientStore is one on which on_error does not decide.
func patientStore(r *remote) string { return storeWithin(r, patient) }

// load loads a Caddyfile over the admin API.
func (s *sites) load(caddyfile string) (status int, body string) {
	s.Helper()
	return s.caddy.Tell(s.T, http.MethodPost, "/load", "text/caddyfile", strings.ReplaceAll(caddyfile, "{admin}", s.caddy.Admin))
}

// users returns how many connections of the limiter a server has.
func (r *remote) users(t *testing.T) int {
	t.Helper()
	list, err := r.admin.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "user="+user+" ")
}

// TestFailedReload loads a configuration whose last handler makes no sense. The old
// one goes on, no request reaches the new one's store, and of the old one's nothing
// is held that would keep it open later.
func TestFailedReload(t *testing.T) {
	r, other := startRemote(t), startRemote(t)
	s := startOne(t, patientStore(r), "deny", "5 1h")
	for range 3 {
		s.get("deny", "key")
	}
	for range 3 {
		wrong := fmt.Sprintf(`http://%s {
	sliding_window {
		zone other {
			limit 5 1h
		}
		store %s
	}
	sliding_window deny {header.X-Key} 6 1h
}
`, caddyrun.FreeAddress(t), patientStore(other))
		status, body := s.load(s.oneSite(patientStore(r), "deny", "5 1h") + wrong)
		if status != http.StatusBadRequest || !strings.Contains(body, "zone deny") {
			t.Errorf("a configuration with two meanings of a zone: status %d, %s", status, body)
		}
		if strings.Contains(body, password) {
			t.Errorf("the answer holds the password: %s", body)
		}
	}
	for i := range 3 {
		want := http.StatusOK
		if i == 2 {
			want = http.StatusTooManyRequests
		}
		if a := s.get("deny", "key"); a.Status != want {
			t.Errorf("request %d afterwards: status %d, want %d", i+1, a.Status, want)
		}
	}
	if n := other.users(t); n != 0 {
		t.Errorf("%d connections to a store that was never used", n)
	}
	if n := r.users(t); n == 0 {
		t.Error("no connections to the store in use")
	}
	if status, body := s.load(s.oneSite("memory", "deny", "5 1h")); status != http.StatusOK {
		t.Fatalf("a valid configuration: status %d, %s", status, body)
	}
	caddyrun.Eventually(t, 2*patient, "no connections to a store that is not used any more", func() bool { return r.users(t) == 0 })
	s.keepsSecrets()
}

var inFlight = regexp.MustCompile(`caddy_http_requests_in_flight\{.*\} (\d+)\n`)

// underWay returns how many requests a handler is at: the one that has most of them.
func (s *sites) underWay() (most int) {
	for _, m := range inFlight.FindAllStringSubmatch(s.metrics(), -1) {
		n, _ := strconv.Atoi(m[1])
		most = max(most, n)
	}
	return most
}

// TestShutdown ends Caddy while requests wait for Redis: they are answered, and
// nothing is left.
func TestShutdown(t *testing.T) {
	r := startRemote(t)
	s := startOne(t, patientStore(r), "deny", "5 1h")
	s.get("deny", "warm")
	r.server.Stop()
	const n = 50
	done := make(chan answers)
	go func() { done <- s.crowd("deny", "last-", n) }()
	caddyrun.Eventually(t, patient, "all are under way", func() bool { return s.underWay() == n })
	s.client.CloseIdleConnections() // Caddy waits for those that were never used
	time.AfterFunc(timeout, r.server.Cont)
	s.caddy.End(t)
	all := <-done
	if got := statuses(all["deny"]); got[http.StatusOK] != n {
		t.Errorf("statuses %v, want %d × 200", got, n)
	}
	caddyrun.Eventually(t, patient, "no connections", func() bool { return r.users(t) == 0 })
}

// TestReloadUnderWay loads another timeout of the store, while requests wait for Redis,
// and others are not at their limit yet: all are decided on by Redis.
func TestReloadUnderWay(t *testing.T) {
	const n, late = 3, "late"
	entered, leave := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.Header.Get("X-Key"), late) {
			entered <- struct{}{}
			<-leave
		}
	}))
	defer slow.Close()
	r := startRemote(t)
	address := caddyrun.FreeAddress(t)
	config := func(timeout time.Duration) string {
		return fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	metrics
}
http://%s {
	route {
		forward_auth %s {
			uri /
		}
		sliding_window {
			zone deny {
				key {header.X-Key}
				limit %d 1h
				algorithm slices
			}
			store %s
			on_error deny
		}
		respond ok
	}
}
`, address, slow.Listener.Addr(), limit, storeWithin(r, timeout))
	}
	s := &sites{T: t, address: map[string]string{"deny": address}}
	s.caddy = caddyrun.Start(t, config(patient), address)
	s.client = caddyrun.NewClient(t)
	s.get("deny", "key")

	got := make(chan int, 2*n)
	ask := func(key string) {
		for range n {
			go func() {
				a, _ := caddyrun.Get(s.client, address, visitor+key)
				got <- a.Status
			}()
		}
	}
	ask(late)
	for range n {
		<-entered
	}
	r.server.Stop()
	ask("key")
	caddyrun.Eventually(t, patient, "all are under way", func() bool { return s.underWay() == 2*n })
	if status, body := s.load(config(patient + time.Second)); status != http.StatusOK {
		t.Fatalf("another timeout: status %d, %s", status, body)
	}
	r.server.Cont()
	close(leave)
	for range 2 * n {
		if status := <-got; status != http.StatusOK {
			t.Errorf("status %d, want 200", status)
		}
	}
	for key, want := range map[string]int64{"key": 1 + n, late: n} {
		if units := r.charged(t, "deny", key); units != want {
			t.Errorf("%s: %d charged, want %d", key, units, want)
		}
	}
}

// TestLimitsDiffer lets two Caddys share a counter with different limits, as in
// the middle of a roll-out: each holds its own, on what both have let pass.
func TestLimitsDiffer(t *testing.T) {
	r := startRemote(t)
	low, high := startOne(t, patientStore(r), "deny", "10 1h"), startOne(t, patientStore(r), "deny", "30 1h")
	var times []int64
	ask := func(s *sites, n int) (passed int, fields string) {
		for range n {
			a := s.get("deny", "key")
			fields = a.Header.Get("RateLimit")
			switch a.Status {
			case http.StatusOK:
				passed++
				times = append(times, a.Gotten.UnixMilli())
			case http.StatusTooManyRequests:
			default:
				t.Errorf("status %d, want 200 or 429", a.Status)
			}
		}
		return passed, fields
	}
	for _, step := range []struct {
		s         *sites
		asked     int
		want      int
		remaining string
	}{
		{low, 4, 4, "r=6;"},
		{high, 4, 4, "r=22;"},
		{low, 4, 2, "r=0;"},
		{high, 30, 20, "r=0;"},
		{low, 5, 0, "r=0;"},
	} {
		if passed, fields := ask(step.s, step.asked); passed != step.want || !strings.Contains(fields, step.remaining) {
			t.Errorf("%d of %d passed, RateLimit %s, want %d and %s", passed, step.asked, fields, step.want, step.remaining)
		}
	}
	if over := traffic.Over(times, 30, time.Hour); over > 0 {
		t.Errorf("%d over the higher limit", over)
	}
	for _, s := range []*sites{low, high} {
		if lines := s.logged(); len(lines) > 0 {
			t.Errorf("the log has %q, want nothing", lines)
		}
	}
}

// TestReloadWhileAway has Redis hang, and the operator try other options of the store:
// no client gets the limit again for that.
func TestReloadWhileAway(t *testing.T) {
	r := startRemote(t)
	s := startOne(t, storeWithin(r, 100*time.Millisecond), "local", "20 1h")
	want := func(what string, asked, least, most int) {
		t.Helper()
		passed := 0
		for range asked {
			if s.get("deny", "key").Status == http.StatusOK {
				passed++
			}
		}
		if passed < least || passed > most {
			t.Errorf("%s: %d of %d pass, want %d to %d", what, passed, asked, least, most)
		}
	}
	want("with Redis", 12, 12, 12)
	r.server.Stop()
	want("while it hangs", 25, 8, 8)
	for _, timeout := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond} {
		if status, body := s.load(s.oneSite(storeWithin(r, timeout), "local", "20 1h")); status != http.StatusOK {
			t.Fatalf("reload: %d %s", status, body)
		}
		want("with a timeout of "+timeout.String(), 25, 0, 0)
	}
	r.server.Cont()
	s.caddy.Logged(t, "store is back")
	// It is unknown which requests it took along: three opened the breaker.
	want("once it is back", 25, 0, 3)
}
