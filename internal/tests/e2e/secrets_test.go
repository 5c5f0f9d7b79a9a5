package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// TestSecretsStaySecret gives stores secrets by placeholder, lets them fail in
// every way, also by servers that repeat what they are told, and looks for the secrets in the log, at level debug, in the metrics,
// in the configuration as the admin API shows it, and in the errors of
// configurations that are refused.
func TestSecretsStaySecret(t *testing.T) {
	secrets := map[string]string{
		"PASSWORD": "s3cret-password", "URL": "s3cret-in-url", "SENTINEL": "s3cret-of-sentinel", "HASH": "s3cret-of-hashes", "FORMER": "s3cret-of-before",
	}
	for name, value := range secrets {
		t.Setenv("SLIDING_WINDOW_"+name, value)
	}
	protected, open := redistest.Start(t), redistest.Start(t)
	if err := protected.Client(t).ConfigSet(t.Context(), "requirepass", "another").Err(); err != nil {
		t.Fatal(err)
	}
	if err := open.Client(t).Do(t.Context(), "ACL", "SETUSER", "noaccess", "on", ">"+secrets["PASSWORD"], "~none:*").Err(); err != nil {
		t.Fatal(err)
	}
	nowhere, address := caddyrun.FreeAddress(t), caddyrun.FreeAddress(t)
	// Redis repeats the arguments of commands that it does not know.
	noAuth := redistest.Start(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	noScript := redistest.Start(t, "--rename-command", "EVALSHA", "")
	hashes := "hash_keys {env.SLIDING_WINDOW_HASH} {env.SLIDING_WINDOW_FORMER}"
	stores := []string{
		"{\naddress " + protected.Addr + "\npassword {env.SLIDING_WINDOW_PASSWORD}\n" + hashes + "\n}",
		"redis://user:{env.SLIDING_WINDOW_URL}@" + protected.Addr + "/1",
		"redis://user:{env.SLIDING_WINDOW_URL}@" + nowhere,
		"rediss://user:{env.SLIDING_WINDOW_URL}@" + open.Addr,
		"{\naddress " + open.Addr + "\nusername noaccess\npassword {env.SLIDING_WINDOW_PASSWORD}\n" + hashes + "\n}",
		"{\naddress " + nowhere + "\nmaster m\nsentinel_password {env.SLIDING_WINDOW_SENTINEL}\npassword {env.SLIDING_WINDOW_PASSWORD}\n}",
		"{\naddress " + noAuth.Addr + "\npassword {env.SLIDING_WINDOW_PASSWORD}\n}",
		"redis://" + noScript.Addr,
		"{\naddress " + nowhere + "\ncluster\npassword {env.SLIDING_WINDOW_PASSWORD}\n}",
	}
	var handles strings.Builder
	for i, store := range stores {
		fmt.Fprintf(&handles, "handle /%d {\nsliding_window zone%[1]d {query.k} 5 1h {\nstore redis %s\non_error allow\n}\nrespond ok\n}\n", i, store)
	}
	caddyfile := fmt.Sprintf("{\nadmin {admin}\npersist_config off\nauto_https off\ndebug\nmetrics\n}\nhttp://%s {\n%s\nhandle /healthz {\nrespond ok\n}\n}\n", address, handles.String())
	process := caddyrun.Start(t, caddyfile, address)
	client := caddyrun.NewClient(t)
	fetch := func(url string) string { return caddyrun.Fetch(t, client, url) }
	caddyrun.Eventually(t, 60*time.Second, "every store is found to be unavailable", func() bool {
		for i := range stores {
			_ = fetch(fmt.Sprintf("http://%s/%d?k=s3cret-key", address, i))
		}
		return strings.Count(process.Log.String(), "store is unavailable") >= len(stores)
	})
	told := map[string]string{
		"metrics": fetch("http://" + process.Admin + "/metrics"),
		"config":  fetch("http://" + process.Admin + "/config/"),
	}
	if !strings.Contains(told["config"], "{env.SLIDING_WINDOW_HASH}") || !strings.Contains(told["metrics"], "caddy_sliding_window_breaker_open") {
		t.Errorf("config and metrics are not those of the test: %v", told)
	}
	for i, store := range []string{
		`"url":"redis://u:{env.SLIDING_WINDOW_URL}@host:port"`,
		`"url":"{env.SLIDING_WINDOW_URL}"`,
		`"url":"redis://u:{env.SLIDING_WINDOW_URL}{env.SLIDING_WINDOW_NONE}@localhost"`,
		`"hash_keys":["{env.SLIDING_WINDOW_HASH}","{env.SLIDING_WINDOW_HASH}{env.SLIDING_WINDOW_NONE}"]`,
		`"hash_keys":["{env.SLIDING_WINDOW_HASH}","` + secrets["HASH"] + `"]`,
		`"hash_keys":"` + secrets["HASH"] + `"`,
		`"hash_keys":["s3cret"]`,
		`"password":"s3cret{s3cret}"`,
		`"password":{"of":"s3cret"}`,
		`"prefix":"{","password":"{env.SLIDING_WINDOW_PASSWORD}"`,
		`"tls":{"ca":"no-such-file"},"password":"{env.SLIDING_WINDOW_PASSWORD}"`,
	} {
		body := `{"module":"redis",` + store + `}`
		status, text := process.Tell(t, http.MethodPost, "/config/apps/sliding_window", "application/json", `{"store":`+body+`}`)
		if status == http.StatusOK {
			t.Errorf("%s is accepted", store)
		}
		told[fmt.Sprintf("error %d", i)] = text
	}
	told["log"] = process.Log.String()
	for where, text := range told {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "s3cret") {
				t.Errorf("%s: %s", where, line)
			}
		}
	}
}

// TestClientsCannotInject sends keys of bytes that mean something to Redis, to Lua,
// to header fields and to logs. They come back in none of them as more than a value.
func TestClientsCannotInject(t *testing.T) {
	server, address := redistest.Start(t), caddyrun.FreeAddress(t)
	process := caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	debug
	servers {
		max_header_size 2MB
	}
}
http://%s {
	handle / {
		sliding_window by_query {query.k} 1 1h {
			log_key
			headers both
			store redis {
				address %s
				timeout 5s
			}
		}
		respond ok
	}
	handle /healthz {
		respond ok
	}
}
`, address, server.Addr), address)
	keys := []string{
		"a\r\nSet-Cookie: x=1", "a\nb", "a\x00b", `a"b`, "a\\", "a'b", "{tag}", "\xff\xfe", "a\r\n*1\r\n$8\r\nFLUSHALL\r\n",
		`"}) redis.call("flushall") --`, "]] .. redis.call('flushall') .. [[", "sw:2-zset:other:key", "%s%d%v", "{http.request.host}", "\u2028", "*",
		strings.Repeat("long", 1<<18), // 1 MiB
	}
	for _, key := range keys {
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			status, header := rawGet(t, address, "/?k="+url.QueryEscape(key))
			if status != want {
				t.Errorf("key %.30q, request %d: status %d, want %d", key, i+1, status, want)
			}
			for name := range header {
				if !slices.Contains([]string{
					"Cache-Control", "Content-Length", "Content-Type", "Date", "Ratelimit", "Ratelimit-Policy", "Retry-After", "Server",
					"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Connection", "Vary",
				}, name) {
					t.Errorf("key %.30q: there is a field %s: %q", key, name, header[name])
				}
			}
			if got := header.Get("RateLimit-Policy"); got != `"by_query";q=1;w=3600` {
				t.Errorf("key %.30q: RateLimit-Policy %s", key, got)
			}
		}
	}
	names, err := server.Client(t).Keys(t.Context(), "*").Result()
	if err != nil || len(names) != len(keys) {
		t.Errorf("%d keys in Redis, %v, want %d: %q", len(names), err, len(keys), names)
	}
	for _, name := range names {
		if rest, ok := strings.CutPrefix(name, "sw:2-zset:by_query:"); !ok || len(name) > 100 || strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c > '~' || c == '{' }) {
			t.Errorf("there is a key %q", name)
		}
	}
	logged := make(map[string]bool)
	caddyrun.Eventually(t, 20*time.Second, "every denial is in the log", func() bool {
		for line := range strings.Lines(process.Log.String()) {
			if !strings.HasSuffix(line, "\n") {
				break // not there as a whole yet
			}
			var entry struct{ Zone, Key string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("the log has a line that is not JSON: %.200q", line)
			}
			if entry.Zone == "by_query" {
				logged[entry.Key] = true
			}
		}
		return len(logged) == len(keys)
	})
	for _, key := range keys {
		if !logged[strings.ToValidUTF8(key, "\ufffd")] && !logged[strings.ReplaceAll(key, "\xff\xfe", "\ufffd\ufffd")] {
			t.Errorf("the log has no denial of %.30q", key)
		}
	}
}

// rawGet sends a request line as it is.
func rawGet(t *testing.T, address, target string) (status int, header http.Header) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, address); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// TestTrustedProxies comes by a proxy that appends to X-Forwarded-For. What a client
// wrote there before does not give it another key.
func TestTrustedProxies(t *testing.T) {
	address := caddyrun.FreeAddress(t)
	caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	servers {
		trusted_proxies static 127.0.0.1/32 10.0.0.0/8
		trusted_proxies_strict
	}
}
http://%s {
	handle / {
		sliding_window clients {client_ip} 2 1h
		respond ok
	}
	handle /healthz {
		respond ok
	}
}
`, address), address)
	client := caddyrun.NewClient(t)
	for i, step := range []struct {
		forwarded string
		want      int
	}{
		{"198.51.100.1", http.StatusOK},
		{"192.0.2.99, 198.51.100.1", http.StatusOK},
		{"192.0.2.98, 198.51.100.1", http.StatusTooManyRequests},
		{"unknown, 198.51.100.1, 10.0.0.1", http.StatusTooManyRequests},
		{"198.51.100.1, 198.51.100.2", http.StatusOK}, // nor can it spend what is another's
		{"198.51.100.2", http.StatusOK},
		{"198.51.100.2", http.StatusTooManyRequests},
	} {
		req, err := http.NewRequest(http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", step.forwarded)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != step.want {
			t.Errorf("request %d, X-Forwarded-For %s: status %d, want %d", i+1, step.forwarded, resp.StatusCode, step.want)
		}
	}
}
