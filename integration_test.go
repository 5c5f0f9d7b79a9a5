package slidingwindow_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
)

// The other tests of a whole Caddy are in internal/tests/e2e.
func TestMain(m *testing.M) {
	os.Exit(caddyrun.Main(m, func() { _ = caddy.Stop() }))
}

const (
	exactLimit   = 50
	exactWindow  = 2 * time.Second
	exactTime    = 10 * time.Second
	exactClients = 16
)

// hammer asks as fast as it can, with 16 clients on one key that take turns
// between the addresses, and returns the answers that passed, in the order in
// which they were sent.
func hammer(t *testing.T, addresses ...string) []caddyrun.Answer {
	t.Helper()
	client := caddyrun.NewClient(t)
	var mu sync.Mutex
	var passed []caddyrun.Answer
	var wg sync.WaitGroup
	end := time.Now().Add(exactTime)
	for i := range exactClients {
		wg.Go(func() {
			for n := i; time.Now().Before(end); n++ {
				a, err := caddyrun.Get(client, addresses[n%len(addresses)], "shared")
				if err != nil {
					t.Error(err)
					return
				}
				switch a.Status {
				case http.StatusOK:
					mu.Lock()
					passed = append(passed, a)
					mu.Unlock()
				case http.StatusTooManyRequests:
				default:
					t.Errorf("status %d, want 200 or 429", a.Status)
					return
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(passed, func(a, b caddyrun.Answer) int { return a.Sent.Compare(b.Sent) })
	return passed
}

// checkPossible fails if the client can prove that a window held too many: of
// any 51 requests that passed, the last answer came a window after the first was
// sent, at least. Stores count in whole milliseconds: what is a window apart on their
// clock may be less than one closer.
func checkPossible(t *testing.T, passed []caddyrun.Answer) {
	t.Helper()
	for i := exactLimit; i < len(passed); i++ {
		first, last := passed[i-exactLimit], passed[i]
		for _, a := range passed[i-exactLimit : i+1] {
			if a.Gotten.After(last.Gotten) {
				last = a
			}
		}
		if span := last.Gotten.Sub(first.Sent); span <= exactWindow-time.Millisecond {
			t.Errorf("%d requests passed within %s, want at most %d in %s", exactLimit+1, span, exactLimit, exactWindow)
		}
	}
	// That no denial is one too many, the tests of the engine show.
	if most := exactLimit * int(exactTime/exactWindow); len(passed) < most*80/100 {
		t.Errorf("%d requests passed, want at least 80 %% of %d", len(passed), most)
	}
}

func exactCaddyfile(address, store string) string {
	return fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	sliding_window {
		store %s
	}
}
http://%s {
	handle / {
		sliding_window api {header.X-Key} %d %s
		respond ok
	}
}
`, store, address, exactLimit, exactWindow)
}

// Two instances, one Redis: the store itself keeps every admission with its
// millisecond until it is pruned, so reading it often enough sees them all.
func TestFleetIsExact(t *testing.T) {
	server := redistest.Start(t)
	store := "redis redis://" + server.Addr + " {\n\t\t\ttimeout 10s\n\t\t}" // on_error must not decide
	one, two := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	caddyrun.Start(t, exactCaddyfile(one, store), one)
	caddyrun.Start(t, exactCaddyfile(two, store), two)

	client, ctx := server.Client(t), context.Background()
	const key = "sw:2-zset:api:shared"
	admitted := make(map[string]int64) // member → ms
	look := func() {
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		if err != nil {
			t.Error(err)
		}
		for _, m := range members {
			if m.Score >= 1<<50 { // how far back the zone looks
				continue
			}
			admitted[m.Member.(string)] = int64(m.Score)
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(exactWindow / 10):
				look()
			}
		}
	}()
	passed := hammer(t, one, two)
	close(stop)
	<-done
	look()

	var times []int64
	for _, at := range admitted {
		times = append(times, at)
	}
	over := traffic.Over(times, exactLimit, exactWindow)
	t.Logf("%d admitted, %d answers passed, %d windows over %d", len(times), len(passed), over, exactLimit)
	if over > 0 {
		t.Errorf("%d windows over %d, want none", over, exactLimit)
	}
	if len(times) != len(passed) {
		t.Errorf("Redis holds %d admissions, clients saw %d", len(times), len(passed))
	}
	checkPossible(t, passed)
	caddyrun.Eventually(t, 2*exactWindow, "all keys are gone two windows after traffic stopped", func() bool {
		return keyCount(t, client) == 0
	})
}

func keyCount(t *testing.T, client *goredis.Client) int64 {
	t.Helper()
	n, err := client.DBSize(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAloneIsExact(t *testing.T) {
	address := caddyrun.FreeAddress(t)
	caddyrun.Start(t, exactCaddyfile(address, "memory"), address)
	passed := hammer(t, address)
	t.Logf("%d answers passed", len(passed))
	checkPossible(t, passed)
}

// What the README promises: the example serves as it is.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	address := caddyrun.FreeAddress(t)
	caddyfile := "{\n\tadmin {admin}\n}\n" + strings.Replace(string(text), "\n:8080 {", "\nhttp://"+address+" {", 1)
	caddyrun.Start(t, caddyfile, address) // asks once
	client := caddyrun.NewClient(t)
	for i := 1; i <= 10; i++ {
		a := caddyrun.MustGet(t, client, address, "")
		want := http.StatusOK
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if a.Status != want {
			t.Errorf("request %d: status %d, want %d", i+1, a.Status, want)
		}
		if a.Header.Get("RateLimit-Policy") != `"per_client";q=10;w=10` || a.Header.Get("RateLimit") == "" {
			t.Errorf("request %d: RateLimit-Policy %q, RateLimit %q", i+1, a.Header.Get("RateLimit-Policy"), a.Header.Get("RateLimit"))
		}
	}
}

// No value of a header reaches another's counter, and every one is limited.
func TestHostileKeys(t *testing.T) {
	server := redistest.Start(t)
	for _, store := range []string{"memory", "redis redis://" + server.Addr} {
		address := caddyrun.FreeAddress(t)
		caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	servers {
		max_header_size 1MB
	}
	sliding_window {
		store %s
	}
}
http://%s {
	handle / {
		sliding_window api "{header.X-Key}{header.X-More}" 2 1h
		respond ok
	}
}
`, store, address), address)
		client := caddyrun.NewClient(t)
		keys := [][2]string{
			{"", ""},
			{"{}", ""},
			{"}", ""},
			{"{", "}"},
			{":", ""},
			{"", ":"},
			{"1:", ""},
			{"a", "b"},
			{"ab", ""},
			{"", "ab"},
			{"\xff\xfe", ""},
			{"\xff", "\xfe"},
			{"#", ""},
			{"api:a", ""},
			{strings.Repeat("x", 100_000), ""},
			{strings.Repeat("x", 100_001), ""},
			{"{overflow}", ""},
		}
		for round := range 2 {
			for _, k := range keys {
				for i := 1; i <= 3; i++ {
					want := http.StatusOK
					if i == 3 || round > 0 {
						want = http.StatusTooManyRequests
					}
					req, _ := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
					req.Header["X-Key"], req.Header["X-More"] = []string{k[0]}, []string{k[1]}
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					if resp.StatusCode != want {
						t.Errorf("store %s: key %.20q: request %d of 2, round %d: status %d, want %d", store, k, i, round, resp.StatusCode, want)
					}
				}
			}
		}
		// Two units each, and no key took another's.
		if strings.HasPrefix(store, "redis") {
			if n := keyCount(t, server.Client(t)); n != int64(len(keys)) {
				t.Errorf("%d keys in Redis, want %d", n, len(keys))
			}
		}
	}
}
