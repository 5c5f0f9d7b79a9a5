package neighbours

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// TestTogether builds one Caddy with this plugin, caddy-ratelimit and caddy-l4. A name, a place in the order of directives, a
// metric or a command that two of them register ends the program when it starts. Both limiters decide on one site.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	caddy := filepath.Join(dir, "caddy")
	if out, err := exec.Command("go", "build", "-o", caddy, "./caddy").CombinedOutput(); err != nil { //nolint:gosec // of a test
		t.Fatalf("%v\n%s", err, out)
	}
	env := append(os.Environ(), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	command := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(caddy, args...) //nolint:gosec // built here
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("caddy %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	modules := strings.Fields(command("list-modules"))
	for _, want := range []string{"http.handlers.sliding_window", "http.sliding_window.stores.redis", "http.handlers.rate_limit", "layer4"} {
		found := 0
		for _, module := range modules {
			if module == want {
				found++
			}
		}
		if found != 1 {
			t.Errorf("caddy list-modules has %s %d times, want once", want, found)
		}
	}

	admin, site, raw := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	path := filepath.Join(dir, "Caddyfile")
	text := `{
	admin ` + admin + `
	metrics
	order rate_limit after sliding_window
	layer4 {
		` + raw + ` {
			route {
				proxy ` + site + `
			}
		}
	}
}
http://` + site + ` {
	sliding_window {
		zone ours {
			match path /ours
			key one
			limit 2 1h
		}
	}
	rate_limit {
		zone theirs {
			match {
				path /theirs
			}
			key one
			events 3
			window 1h
		}
	}
	respond ok
}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	adapted := command("adapt", "--config", path)
	if ours, theirs := strings.Index(adapted, `"handler":"sliding_window"`), strings.Index(adapted, `"handler":"rate_limit"`); ours < 0 || ours > theirs {
		t.Errorf("the order is another one: %s", adapted)
	}
	command("validate", "--config", path)

	cmd := exec.Command(caddy, "run", "--config", path) //nolint:gosec // built here
	var log bytes.Buffer
	cmd.Env, cmd.Stderr = env, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("caddy ended: %v\n%s", err, log.String())
		}
	})
	client := caddyrun.NewClient(t)
	get := func(url string) (int, string) {
		resp, err := client.Get(url)
		if err != nil {
			return 0, ""
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	for _, address := range []string{site, raw} { // the second through caddy-l4
		caddyrun.Eventually(t, 30*time.Second, "caddy answers at "+address, func() bool { status, _ := get("http://" + address + "/"); return status == http.StatusOK })
	}
	for url, limit := range map[string]int{"http://" + raw + "/ours": 2, "http://" + site + "/theirs": 3} {
		for i := range limit + 1 {
			want := http.StatusOK
			if i == limit {
				want = http.StatusTooManyRequests
			}
			if status, _ := get(url); status != want {
				t.Errorf("%s, request %d: got %d, want %d", url, i+1, status, want)
			}
		}
	}
	if status, metrics := get("http://" + admin + "/metrics"); status != http.StatusOK || !strings.Contains(metrics, `caddy_sliding_window_decisions_total{`) {
		t.Errorf("the metrics: %d\n%.2000s", status, metrics)
	}
	if out := command("sliding-window", "zones", "--address", admin); !strings.Contains(out, "ours") {
		t.Errorf("caddy sliding-window zones shows\n%s", out)
	}
}
