package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestNewerWords does to a Caddy what docs/upgrading.md says that newer words do to an older one.
func TestNewerWords(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	const word = "of_a_newer_version"
	server, client, dir, site := redistest.Start(t), caddyrun.NewClient(t), t.TempDir(), caddyrun.FreeAddress(t)
	caddyfile := fmt.Sprintf(strings.Replace(caddyrun.Sharing, "limit 1000 1h", "limit 1 1h", 1), dir, "address "+server.Addr, site)
	newer := strings.Replace(caddyfile, "limit 1 1h", "limit 2 1h\n\t\t\t"+word+" 1", 1)

	fails := func(what string, args ...string) {
		t.Helper()
		cmd := exec.Command(caddyrun.Binary(t), append([]string{"run"}, args...)...) //nolint:gosec // built here
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), word) {
			t.Errorf("%s: got %v, and\n%s", what, err, out)
		}
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	admin := caddyrun.FreeAddress(t)
	fails("a start with a Caddyfile", "--config", write("Caddyfile", strings.ReplaceAll(newer, "{admin}", admin)))
	saved := fmt.Sprintf(`{"admin":{"listen":%q},"apps":{"http":{"servers":{"s":{"listen":[%q],"routes":[{"handle":[{"handler":"sliding_window",
		"zones":[{"name":"api","limits":[{"max":1,"window":"1h"}],%q:1}]}]}]}}}}}`, admin, site, word)
	fails("a start with JSON", "--config", write("config.json", saved))
	write("caddy/autosave.json", saved)
	fails("a start with what was saved", "--resume")

	p := caddyrun.Start(t, caddyfile, site)
	if status, text := p.Tell(t, http.MethodPost, "/load", "text/caddyfile", strings.ReplaceAll(newer, "{admin}", p.Admin)); status != http.StatusBadRequest || !strings.Contains(text, word) {
		t.Errorf("a reload: got %d %s", status, text)
	}
	if status, text := p.Tell(t, http.MethodPost, "/sliding_window/overrides/set", "application/json", `{"zone":"api","key":"anna","deny":true,"`+word+`":1}`); status != http.StatusBadRequest || !strings.Contains(text, "unknown field") {
		t.Errorf("an override: got %d %s", status, text)
	}
	asks := func(key string, want int) {
		t.Helper()
		caddyrun.Eventually(t, 20*time.Second, fmt.Sprint(key, " gets ", want), func() bool { return caddyrun.MustGet(t, client, site, key).Status == want })
	}
	asks("anna", http.StatusOK) // the former configuration goes on, and nothing was changed
	asks("anna", http.StatusTooManyRequests)

	enforced(t, p, `{"zone":"api","mode":"shadow","ttl":"1h"}`, http.StatusOK)
	asks("anna", http.StatusOK)
	redis := server.Client(t)
	var order map[string]any
	if err := json.Unmarshal([]byte(redis.HGet(t.Context(), "sw:{enforce}", "api").Val()), &order); err != nil {
		t.Fatal(err)
	}
	order["mode"], order["at"] = word, time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
	text, _ := json.Marshal(order)
	if err := redis.HSet(t.Context(), "sw:{enforce}", "api", text).Err(); err != nil {
		t.Fatal(err)
	}
	asks("anna", http.StatusTooManyRequests)
	p.Logged(t, "enforcement of zone that was changed at another Caddy cannot hold in this one")
}
