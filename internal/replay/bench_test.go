package replay_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
)

// manyLines writes a log of Caddy, about a KB a line.
func manyLines(b *testing.B, n int) string {
	b.Helper()
	name := filepath.Join(b.TempDir(), "access.log")
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	rng := rand.New(rand.NewPCG(1, 2))
	at := float64(start)
	for range n {
		at += rng.ExpFloat64() / 300
		took := rng.ExpFloat64() / 20
		ip := fmt.Sprintf("10.0.%d.%d", rng.IntN(100), rng.IntN(250))
		_, _ = fmt.Fprintf(w, `{"level":"info","ts":%.7f,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":%q,"remote_port":"%d","client_ip":%[2]q,"proto":"HTTP/2.0","method":"GET","host":"example.com","uri":"/api/items/%[4]d?page=2","headers":{"User-Agent":["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 Safari/537.36"],"Accept":["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],"Accept-Encoding":["gzip, deflate, br"],"Accept-Language":["en-US,en;q=0.5"],"Referer":["https://example.com/"],"Cookie":["REDACTED"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},"bytes_read":0,"user_id":"","duration":%.9f,"size":%d,"status":%d,"resp_headers":{"Server":["Caddy"],"Content-Type":["text/html; charset=utf-8"],"Alt-Svc":["h3=\":443\"; ma=2592000"]}}`+"\n",
			at+took, ip, 1024+rng.IntN(60000), rng.IntN(1000), took, rng.IntN(9000), []int{200, 200, 404, 401}[rng.IntN(4)])
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return name
}

// BenchmarkReplay says how many lines a second are decided on.
func BenchmarkReplay(b *testing.B) {
	for name, zones := range map[string]string{
		"zone":         "zone a {\nlimit 5 1m\n}\n",
		"two/count_if": "zone a {\nlimit 5 1m\n}\nzone b {\nmatch path /api/*\nkey {client_ip}\nlimit 3 1m\ncount_if status 401\n}\n",
	} {
		b.Run(name, func(b *testing.B) {
			log := manyLines(b, b.N)
			config := filepath.Join(b.TempDir(), "Caddyfile")
			if err := os.WriteFile(config, []byte("example.com {\nsliding_window {\n"+zones+"}\nreverse_proxy localhost:9000\n}\n"), 0o600); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if _, err := replay.Run(options(config, log)); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkSuggest says how many lines a second are counted.
func BenchmarkSuggest(b *testing.B) {
	for _, key := range []string{"client_ip", "header.Referer"} {
		b.Run(key, func(b *testing.B) {
			log := manyLines(b, b.N)
			b.ResetTimer()
			if _, err := replay.Suggest(suggestOptions(key, log)); err != nil {
				b.Fatal(err)
			}
		})
	}
}
