package e2e_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// 200 reloads under load with changing limits, stores and zones, one of them invalid:
// no request fails, every request that passed is counted, and nothing is left over.
func TestReloadUnderLoad(t *testing.T) {
	server := redistest.Start(t)
	alone, fleet, other := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	// On a busy machine Redis seems far away, and a store may use its whole pool.
	const pool = 4
	block := fmt.Sprintf(" {\n\t\t\tpool_size %d\n\t\t}", pool)
	stores := []string{"memory", "redis redis://" + server.Addr + block, "redis redis://" + server.Addr + "/1" + block}
	algorithms := []string{"zset", "log", "slices", "gcra", "stream"}
	config := func(limit int) string {
		n := max(0, limit)
		return fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	storage_clean_interval off
}
http://%s {
	sliding_window alone {header.X-Key} %d 10m
	respond ok
}
http://%s {
	sliding_window fleet {header.X-Key} %d 10m {
		store redis redis://%s {
			timeout 10s
			pool_size %d
		}
	}
	respond ok
}
http://%s {
	sliding_window {
		zone other%d {
			key {header.X-Key}
			limit 1000000000 10m
			algorithm %s
		}
		store %s
		on_error allow
	}
	respond ok
}
`, alone, limit, fleet, limit, server.Addr, pool, other, n%7, algorithms[n%len(algorithms)], stores[n%len(stores)])
	}
	client, key := caddyrun.NewClient(t), rand.Text() // memory outlives this test
	var closed atomic.Int64
	load := func(reloads func()) map[string]int64 {
		stop := make(chan struct{})
		passed := map[string]*atomic.Int64{alone: new(atomic.Int64), fleet: new(atomic.Int64), other: new(atomic.Int64)}
		var wg sync.WaitGroup
		for address, n := range passed {
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						a, err := caddyrun.Get(client, address, key)
						if err != nil {
							// Caddy closes the old listener with connections in its queue.
							// That none of them was a request, the counts below show.
							closed.Add(1)
							continue
						}
						if a.Status != http.StatusOK {
							t.Errorf("%s: status %d, want 200", address, a.Status)
							return
						}
						n.Add(1)
					}
				})
			}
		}
		reloads()
		close(stop)
		wg.Wait()
		client.CloseIdleConnections()
		return map[string]int64{alone: passed[alone].Load(), fleet: passed[fleet].Load()}
	}

	const limit, reloads = 1_000_000_000, 200 // no machine gets to the limit
	if err := loadCaddy(config(limit)); err != nil {
		t.Fatal(err)
	}
	before := load(func() { time.Sleep(200 * time.Millisecond) })
	goroutines := runtime.NumGoroutine()

	after := load(func() {
		for i := range reloads {
			if i == reloads/2 {
				if err := loadAtOnce(config(-1)); err == nil {
					t.Error("a negative limit was accepted")
				}
				continue
			}
			if err := loadAtOnce(config(limit + i)); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	caddyrun.AfterReload()
	for _, address := range []string{alone, fleet} {
		a := caddyrun.MustGet(t, client, address, key)
		count := int64(limit+reloads-1) - remaining(t, a)
		if want := before[address] + after[address] + 1; count != want {
			t.Errorf("%s: %d counted, %d passed", address, count, want)
		}
	}
	t.Logf("%d requests passed during %d reloads, %d connections found the listener closing", after[alone]+after[fleet]+after[other], reloads, closed.Load())
	client.CloseIdleConnections()
	const connections = 2 * pool // of the two stores that are left
	caddyrun.Eventually(t, 20*time.Second, "hardly more goroutines than before, and no connections of stores that are gone", func() bool {
		// The count before is of a busy process; a leak would leave one for each reload.
		return runtime.NumGoroutine() <= goroutines+reloads/20 && connectionCount(t, server) <= connections
	})
}

var remainingParam = regexp.MustCompile(`;r=(\d+)`)

func remaining(t *testing.T, a caddyrun.Answer) int64 {
	t.Helper()
	m := remainingParam.FindStringSubmatch(a.Header.Get("RateLimit"))
	if m == nil {
		t.Fatalf("no remaining in RateLimit %q, status %d", a.Header.Get("RateLimit"), a.Status)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64)
	return n
}

func connectionCount(t *testing.T, server *redistest.Server) int {
	t.Helper()
	list, err := server.Client(t).ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(list) {
		if strings.Contains(line, "cmd=evalsha") {
			n++
		}
	}
	return n
}

// A limit that is changed in place acts on the history that is there.
func TestPatchOneLimit(t *testing.T) {
	address := caddyrun.FreeAddress(t)
	p := caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
}
http://%s {
	sliding_window patched {header.X-Key} 5 1h
	respond ok
}
`, address), address)
	client := caddyrun.NewClient(t)
	for range 5 {
		caddyrun.MustGet(t, client, address, "k")
	}
	if a := caddyrun.MustGet(t, client, address, "k"); a.Status != http.StatusTooManyRequests {
		t.Errorf("sixth request: status %d, want 429", a.Status)
	}
	patch := func(max string) (int, string) {
		return p.Tell(t, http.MethodPatch, "/config/apps/http/servers/srv0/routes/0/handle/0/routes/0/handle/0/zones/0/limits/0/max", "application/json", max)
	}
	if status, body := patch("-7"); status < 400 || !strings.Contains(body, "zone patched: limit -7 1h") {
		t.Errorf("PATCH max -7: status %d, body %s", status, body)
	}
	if status, _ := patch("7"); status != http.StatusOK {
		t.Fatalf("PATCH max 7: status %d, want 200\n%s", status, p.Log)
	}
	a := caddyrun.MustGet(t, client, address, "k")
	if a.Status != http.StatusOK || remaining(t, a) != 1 {
		t.Errorf("after the limit was raised to 7: status %d, RateLimit %q, want 200 and 1 remaining", a.Status, a.Header.Get("RateLimit"))
	}
}

// A zone in two places changes in both at once, in what holds both.
func TestPatchZoneInTwoPlaces(t *testing.T) {
	address := caddyrun.FreeAddress(t)
	p := caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
}
http://%s {
	route {
		sliding_window /a patched_twice {header.X-Key} 5 1h
		sliding_window /b patched_twice {header.X-Key} 5 1h
		respond ok
	}
}
`, address), address)
	const both = "/config/apps/http/servers/srv0/routes/0/handle/0/routes/0/handle/0/routes"
	_, routes := p.Tell(t, http.MethodGet, both, "", "")
	if n := strings.Count(routes, `"max":5`); n != 2 {
		t.Fatalf("%d limits of 5 in %s, want 2", n, routes)
	}
	status, body := p.Tell(t, http.MethodPatch, both+"/0/handle/0/zones/0/limits/0/max", "application/json", "7")
	if status < 400 || !strings.Contains(body, "zone patched_twice: defined twice, and not the same") {
		t.Errorf("PATCH of one: status %d, body %s", status, body)
	}
	status, body = p.Tell(t, http.MethodPatch, both, "application/json", strings.ReplaceAll(routes, `"max":5`, `"max":7`))
	if status != http.StatusOK {
		t.Errorf("PATCH of both: status %d, body %s", status, body)
	}
}

// What `caddy validate` says of a mistake, and that it does not need Redis.
func TestValidate(t *testing.T) {
	binary := caddyrun.Binary(t)
	validate := func(caddyfile string) (string, error) {
		path := filepath.Join(t.TempDir(), "Caddyfile")
		if err := os.WriteFile(path, []byte(caddyfile), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(binary, "validate", "--config", path).CombinedOutput()
		return string(out), err
	}
	out, err := validate(":80 {\n\tsliding_window {\n\t\tzone api {\n\t\t\tlimit -5 1m\n\t\t}\n\t}\n}\n")
	if err == nil {
		t.Error("a negative limit is valid")
	}
	for _, want := range []string{"zone api", "limit -5 1m", "negative", "Caddyfile:4"} {
		if !strings.Contains(out, want) {
			t.Errorf("caddy validate does not say %q:\n%s", want, out)
		}
	}
	closedAddress := caddyrun.FreeAddress(t)
	if out, err := validate(fmt.Sprintf("{\n\tsliding_window {\n\t\tstore redis redis://%s\n\t}\n}\n:80 {\n\tsliding_window api {client_ip} 5 1m\n}\n", closedAddress)); err != nil {
		t.Errorf("without Redis: %v\n%s", err, out)
	}
}
