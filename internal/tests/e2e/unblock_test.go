package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestUnblockOneCustomer runs the commands of the recipe beside one of two Caddys that share a Redis, behind a load balancer.
func TestUnblockOneCustomer(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	const heading = "Unblock one customer"
	commands := strings.Split(strings.TrimSpace(shellBelow(t, recipes, heading)), "\n")
	if len(commands) != 3 {
		t.Fatalf("%s has %d commands below %q, want 3", recipes, len(commands), heading)
	}
	server := redistest.Start(t)
	caddyfile := "{\n\tadmin {admin}\n\tpersist_config off\n\tauto_https off\n\tstorage_clean_interval off\n" +
		"\tsliding_window {\n\t\tstore redis redis://" + server.Addr + "/0\n\t}\n" + strings.TrimPrefix(blockBelow(t, recipes, "Behind a load balancer", 1), "{\n")
	caddyfile = strings.NewReplacer("10.0.0.0/8", "127.0.0.0/8", "reverse_proxy localhost:9000", "respond ok").Replace(caddyfile)
	var sites [2]string
	dir := caddyrun.Commands(t)
	for i := range sites {
		sites[i] = caddyrun.FreeAddress(t)
		file := strings.Replace(caddyfile, ":8080 {", "http://"+sites[i]+" {", 1)
		process := caddyrun.Start(t, file, sites[i])
		if i > 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(strings.ReplaceAll(file, "{admin}", process.Admin)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client := caddyrun.NewClient(t)
	ask := func(site, from string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "http://"+site+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", from)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	use := func(from string) {
		t.Helper()
		for i := range 100 {
			if status := ask(sites[i%2], from); status != http.StatusOK {
				t.Fatalf("request %d of %s: %d", i+1, from, status)
			}
		}
	}
	want := func(status int, from string) {
		t.Helper()
		for _, site := range sites {
			caddyrun.Eventually(t, 20*time.Second, from+" gets "+http.StatusText(status), func() bool { return ask(site, from) == status })
		}
	}
	run := func(command string) {
		t.Helper()
		if stdout, stderr, ok := shell(t, dir, "", command); !ok || stdout == "" {
			t.Fatalf("%s: got %q, and %q", command, stdout, stderr)
		}
	}
	const customer, other = "203.0.113.7", "203.0.113.8"
	use(customer)
	use(other)
	want(http.StatusTooManyRequests, customer)
	run(commands[0])
	want(http.StatusOK, customer)
	want(http.StatusTooManyRequests, other)

	run(commands[1])
	for range 200 {
		want(http.StatusOK, customer)
	}
	want(http.StatusTooManyRequests, other)
	run(commands[2])
	want(http.StatusTooManyRequests, customer)
}
