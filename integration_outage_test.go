package slidingwindow_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

const (
	outageTimeout = 100 * time.Millisecond
	outageLimit   = 20
	outageTime    = 3 * time.Second
	// remembered is how long a denial may outlast what it is due to.
	remembered = time.Second
)

// outageSites are three sites that differ in on_error, and one without limits to
// compare with.
type outageSites struct {
	local, allow, deny, free string
	process                  *caddyProcess
}

func startOutageSites(t *testing.T, redis string) outageSites {
	s := outageSites{local: freeAddress(t), allow: freeAddress(t), deny: freeAddress(t), free: freeAddress(t)}
	var sites strings.Builder
	for policy, address := range map[string]string{"local": s.local, "allow": s.allow, "deny": s.deny} {
		fmt.Fprintf(&sites, `http://%s {
	handle / {
		sliding_window %s {header.X-Key} %d 1h {
			on_error %[2]s
		}
		respond ok
	}
}
`, address, policy, outageLimit)
	}
	s.process = startCaddy(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	sliding_window {
		store redis {
			address %s
			timeout %s
		}
	}
}
%shttp://%s {
	respond ok
}
`, redis, outageTimeout, sites.String(), s.free), s.free)
	return s
}

// slowProxy forwards to a server; slow makes every answer late until undone.
func slowProxy(t *testing.T, upstream string) (address string, slow func(on bool)) {
	t.Helper()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	proxy := toxiproxy.NewProxy(api, "redis", "127.0.0.1:0", upstream)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy.Listen, func(on bool) {
		if !on {
			proxy.Toxics.ResetToxics(context.Background())
			return
		}
		toxic := `{"name":"slow","type":"latency","attributes":{"latency":400}}`
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			t.Fatal(err)
		}
	}
}

// visit asks each site in turn until the time is over, and returns the answers
// by address.
func (s outageSites) visit(t *testing.T, client *http.Client, key string, d time.Duration) map[string][]answer {
	t.Helper()
	var mu sync.Mutex
	all := make(map[string][]answer)
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for _, address := range []string{s.local, s.allow, s.deny, s.free} {
		wg.Go(func() {
			for time.Now().Before(end) {
				a, err := get(client, address, key)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all[address] = append(all[address], a)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond) // a machine at its limits measures itself
			}
		})
	}
	wg.Wait()
	return all
}

func statuses(answers []answer) map[int]int {
	n := make(map[int]int)
	for _, a := range answers {
		n[a.status]++
	}
	return n
}

func slowest(answers []answer) time.Duration {
	var most time.Duration
	for _, a := range answers {
		most = max(most, a.gotten.Sub(a.sent))
	}
	return most
}

func average(answers []answer) time.Duration {
	var sum time.Duration
	for _, a := range answers {
		sum += a.gotten.Sub(a.sent)
	}
	return sum / time.Duration(max(1, len(answers)))
}

// Redis goes away in three ways, under traffic, and comes back.
func TestOutages(t *testing.T) {
	server := redistest.Start(t)
	proxy, slow := slowProxy(t, server.Addr)
	for _, fault := range []struct {
		name       string
		redis      string
		begin, end func(t *testing.T)
		forgets    bool // whether the counts are gone afterwards
	}{
		{
			name: "killed", redis: server.Addr, forgets: true,
			begin: func(*testing.T) { server.Kill() }, end: func(t *testing.T) { server.Restart(t) },
		},
		{
			name: "hung", redis: server.Addr,
			begin: func(*testing.T) { server.Stop() }, end: func(*testing.T) { server.Cont() },
		},
		{
			name: "slow", redis: proxy,
			begin: func(*testing.T) { slow(true) }, end: func(*testing.T) { slow(false) },
		},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s := startOutageSites(t, fault.redis)
			client := newClient(t)
			eventually(t, 10*time.Second, "the store decides", func() bool {
				return mustGet(t, client, s.deny, "warm").status == http.StatusOK
			})
			for _, address := range []string{s.local, s.allow, s.deny} {
				// On a busy machine some may not be decided in time, and not be counted.
				for asked := 0; mustGet(t, client, address, fault.name).status != http.StatusTooManyRequests; asked++ {
					if asked == 3*outageLimit {
						t.Fatalf("before the fault: no request of %d is denied\n%s", asked, s.process.log)
					}
				}
			}

			fault.begin(t)
			began := time.Now()
			during := s.visit(t, client, fault.name, outageTime)
			s.checkStatuses(t, during, began)
			s.checkTimes(t, during, began)
			fresh := fault.name + "-fresh"
			for i := range 2 * outageLimit {
				want := http.StatusOK
				if i >= outageLimit {
					want = http.StatusTooManyRequests
				}
				if a := mustGet(t, client, s.local, fresh); a.status != want {
					t.Errorf("local: request %d of a fresh key: status %d, want %d", i+1, a.status, want)
				}
			}

			fault.end(t)
			back := time.Now()
			eventually(t, 2*time.Second, "the store decides again", func() bool {
				return mustGet(t, client, s.deny, "probe").status == http.StatusOK
			})
			t.Logf("back after %s", time.Since(back).Round(time.Millisecond))
			want := http.StatusTooManyRequests
			if fault.forgets {
				want = http.StatusOK
			}
			for _, address := range []string{s.local, s.allow, s.deny} {
				if a := mustGet(t, client, address, fault.name); a.status != want {
					t.Errorf("after the fault: status %d, want %d", a.status, want)
				}
			}
			// What passed without the store is counted there, once.
			for range 2 {
				if a := mustGet(t, client, s.local, fresh); a.status != http.StatusTooManyRequests {
					t.Errorf("after the fault, a key that was used up in it: status %d, want 429", a.status)
				}
			}
			if n := server.Client(t).ZCard(context.Background(), "sw:zset:local:"+fresh).Val(); n != outageLimit {
				t.Errorf("after the fault: %d units are counted of a key that was used up in it, want %d", n, outageLimit)
			}
			s.checkLog(t)
		})
	}
}

// checkStatuses wants what on_error says, after the denials from before the fault.
func (s outageSites) checkStatuses(t *testing.T, during map[string][]answer, began time.Time) {
	t.Helper()
	for _, address := range []string{s.allow, s.deny} {
		during[address] = slices.DeleteFunc(during[address], func(a answer) bool {
			return a.status == http.StatusTooManyRequests && a.sent.Before(began.Add(remembered))
		})
	}
	if local := statuses(during[s.local]); local[http.StatusTooManyRequests] != len(during[s.local]) {
		t.Errorf("local: statuses %v, want 429: the key was used up before the fault", local)
	}
	if allow := statuses(during[s.allow]); allow[http.StatusOK] != len(during[s.allow]) {
		t.Errorf("allow: statuses %v, want 200", allow)
	}
	if deny := statuses(during[s.deny]); deny[http.StatusServiceUnavailable] != len(during[s.deny]) {
		t.Errorf("deny: statuses %v, want 503", deny)
	}
}

// checkTimes compares with the site without limits, which shares the machine and
// whatever else it does.
func (s outageSites) checkTimes(t *testing.T, during map[string][]answer, began time.Time) {
	t.Helper()
	settled := began.Add(remembered + 5*outageTimeout) // the breaker has opened
	later := func(answers []answer) []answer {
		var out []answer
		for _, a := range answers {
			if a.sent.After(settled) {
				out = append(out, a)
			}
		}
		return out
	}
	free, freeLater := slowest(during[s.free]), average(later(during[s.free]))
	for name, address := range map[string]string{"local": s.local, "allow": s.allow, "deny": s.deny} {
		most, mean := slowest(during[address]), average(later(during[address]))
		t.Logf("%s: slowest %s, average once the breaker is open %s (without limits %s and %s)", name, most, mean, free, freeLater)
		if most > outageTimeout+50*time.Millisecond+free {
			t.Errorf("%s: slowest request took %s, want at most %s", name, most, outageTimeout+50*time.Millisecond)
		}
		if most := time.Millisecond + freeLater/2; mean-freeLater > most { // on a busy machine both take longer
			t.Errorf("%s: requests took %s longer than without limits once the breaker was open, want %s at most", name, mean-freeLater, most)
		}
	}
}

// checkLog wants a line when the store goes and one when it comes back.
func (s outageSites) checkLog(t *testing.T) {
	t.Helper()
	log := s.process.log.String()
	for _, line := range []string{"store is unavailable", "store is back"} {
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("the log says %d times %q, want once:\n%s", n, line, log)
		}
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"level":"error"`) {
			t.Errorf("the log has an error: %s", line)
		}
	}
}

// What Redis forgets does no harm, and nobody notices.
func TestFlushes(t *testing.T) {
	server := redistest.Start(t)
	s := startOutageSites(t, server.Addr)
	client, admin, ctx := newClient(t), server.Client(t), context.Background()
	for _, flush := range []struct {
		name    string
		do      func() error
		forgets bool
	}{
		{"SCRIPT FLUSH", func() error { return admin.ScriptFlush(ctx).Err() }, false},
		{"FLUSHALL", func() error { return admin.FlushAll(ctx).Err() }, true},
	} {
		t.Run(flush.name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				time.Sleep(outageTime / 3)
				done <- flush.do()
			}()
			answers := s.visit(t, client, flush.name, outageTime)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			want := outageLimit
			if flush.forgets {
				want = 2 * outageLimit
			}
			for _, address := range []string{s.local, s.allow, s.deny} {
				n := statuses(answers[address])
				if n[http.StatusOK] != want || n[http.StatusOK]+n[http.StatusTooManyRequests] != len(answers[address]) {
					t.Errorf("statuses %v, want %d × 200 and 429", n, want)
				}
			}
		})
	}
	if strings.Contains(s.process.log.String(), "store is unavailable") {
		t.Errorf("a flush counts as an outage:\n%s", s.process.log)
	}
}

// A hung Redis that wakes up finds each request once at most.
func TestHungRedisChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	s := startOutageSites(t, server.Addr)
	client := newClient(t)
	mustGet(t, client, s.deny, "warm")
	server.Stop()
	const requests = 30
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			if a, err := get(client, s.deny, fmt.Sprintf("once-%d", i)); err != nil || a.status != http.StatusServiceUnavailable {
				t.Errorf("status %d, error %v, want 503", a.status, err)
			}
		})
	}
	wg.Wait()
	server.Cont()
	eventually(t, 2*time.Second, "the store decides again", func() bool {
		return mustGet(t, client, s.deny, "probe").status == http.StatusOK
	})
	redis, late := server.Client(t), 0
	for i := range requests {
		n, err := redis.ZCard(context.Background(), fmt.Sprintf("sw:zset:deny:once-%d", i)).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n > 1 {
			t.Errorf("request %d was charged %d times", i, n)
		}
		late += int(n)
	}
	t.Logf("%d of %d requests that were refused were charged when Redis woke up", late, requests)
}

// Clients that hang up while Redis takes its time are no outage.
func TestHangingUpIsNoOutage(t *testing.T) {
	server := redistest.Start(t)
	s := startOutageSites(t, server.Addr)
	client := newClient(t)
	mustGet(t, client, s.deny, "warm")
	server.Stop()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), outageTimeout/10)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.deny+"/", nil)
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Error("an answer came from a hung Redis")
			}
		})
	}
	wg.Wait()
	server.Cont()
	eventually(t, 2*time.Second, "the store decides", func() bool {
		return mustGet(t, client, s.deny, "probe").status == http.StatusOK
	})
	if strings.Contains(s.process.log.String(), "store is unavailable") {
		t.Errorf("the log tells of an outage:\n%s", s.process.log)
	}
}
