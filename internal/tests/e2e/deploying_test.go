package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// literalOf returns a text that kubernetes.yaml has as a block below a key.
func literalOf(t *testing.T, key string) string {
	t.Helper()
	block := regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(key) + ": \\|\n((?:    .*\n|\n)+)").FindStringSubmatch(readFile(t, "docs/kubernetes.yaml"))
	if block == nil {
		t.Fatalf("docs/kubernetes.yaml has no %s", key)
	}
	return regexp.MustCompile(`(?m)^    `).ReplaceAllString(block[1], "")
}

// TestKubernetesServes serves the Caddyfile of docs/kubernetes.yaml as the user of its Secret, on a Redis with its configuration.
func TestKubernetesServes(t *testing.T) {
	dir := t.TempDir()
	users, password := filepath.Join(dir, "users.acl"), filepath.Join(dir, "password")
	for file, text := range map[string]string{users: literalOf(t, "users.acl"), password: "change-me\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text := literalOf(t, "users.acl"); !strings.Contains(text, redis.Permissions+"\n") {
		t.Errorf("the user of docs/kubernetes.yaml is not allowed %s:\n%s", redis.Permissions, text)
	}
	// Redis refuses the user that redistest asks with, if it reads the file at start.
	server := redistest.Start(t)
	for line := range strings.Lines(literalOf(t, "users.acl")) {
		words := strings.Fields(line)
		if words[1] == "default" {
			continue
		}
		args := []any{"ACL", "SETUSER"}
		for _, word := range words[1:] {
			args = append(args, word)
		}
		if err := server.Client(t).Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	caddyfile := literalOf(t, "Caddyfile")
	site, inside := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	checkCaddyfile(t, caddyfile, "", "/run/secrets/redis/password", password)
	caddyfile = strings.NewReplacer("\tadmin localhost:2019\n", "\tadmin off\n\tauto_https off\n\tstorage_clean_interval off\n",
		"redis.limits.svc:6379", server.Addr, "/run/secrets/redis/password", password, "reverse_proxy backend.default.svc:80", "respond ok",
		":8080 {", "http://"+site+" {", ":9090 {", "http://"+inside+" {").Replace(caddyfile)
	if err := loadCaddy(caddyfile); err != nil {
		t.Fatalf("%v\n%s", err, caddyfile)
	}
	t.Cleanup(func() { _ = caddy.Stop() })
	client := caddyrun.NewClient(t)
	for i := range 101 {
		want := http.StatusOK
		if i == 100 {
			want = http.StatusTooManyRequests
		}
		if a := caddyrun.MustGet(t, client, site, ""); a.Status != want {
			t.Fatalf("request %d: %d, want %d", i+1, a.Status, want)
		}
	}
	if keys, err := server.Client(t).Keys(t.Context(), "sw:2-zset:per_client:*").Result(); err != nil || len(keys) != 1 {
		t.Errorf("Redis has the counters %q, %v", keys, err)
	}
	if metrics := caddyrun.Fetch(t, client, "http://"+inside+"/metrics"); !regexp.MustCompile(`outcome="denied",zone="per_client"} [1-9]`).MatchString(metrics) { // with those of other tests
		t.Errorf("the metrics do not show the denial:\n%s", metrics)
	}
	_ = caddyrun.Fetch(t, client, "http://"+inside+"/healthz")
}

// TestDeployingVersions holds the versions that pages name to the oldest, of go.mod, and the newest, of newest.mod.
func TestDeployingVersions(t *testing.T) {
	versions := func(name string) (caddy, goes string) {
		mod := readFile(t, name)
		c := regexp.MustCompile(`(?m)^\tgithub.com/caddyserver/caddy/v2 v(\S+)$`).FindStringSubmatch(mod)
		g := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(mod)
		if c == nil || g == nil {
			t.Fatalf("%s names no version of Caddy, or none of Go", name)
		}
		return c[1], g[1]
	}
	oldest, oldestGo := versions("go.mod")
	newest, _ := versions("newest.mod")
	page := readFile(t, "docs/deploying.md")
	for _, want := range []string{"FROM caddy:" + newest + "-builder AS build\n", "FROM caddy:" + newest + "\n", "Go " + oldestGo + " or newer", "Caddy v" + oldest + " or newer"} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/deploying.md does not say %q", want)
		}
	}
	for _, want := range []string{"v" + oldest + " or newer", oldestGo + " or newer", "v" + newest} {
		if !strings.Contains(readFile(t, "docs/compatibility.md"), want) {
			t.Errorf("docs/compatibility.md does not say %q", want)
		}
	}
}
