package e2e_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// shopLog is the access log of docs/choosing.md: six hours of a shop with 400 visitors, an office behind one address, and
// three crawlers.
func shopLog() string {
	rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // it is the same each time
	type hit struct {
		at        float64 // ms since the beginning
		ip        string
		path      string
		took, was int
	}
	var hits []hit
	page := func(ip string, at float64) {
		hits = append(hits, hit{at, ip, fmt.Sprintf("/products/%d", rng.IntN(500)), 20 + rng.IntN(80), 200})
		for range rng.IntN(9) {
			hits = append(hits, hit{at + 120 + rng.ExpFloat64()*200, ip, fmt.Sprintf("/static/%d.css", rng.IntN(40)), 1 + rng.IntN(3), 200})
		}
	}
	const span = 6 * 3600 * 1000.0
	visit := func(ip string) {
		at := rng.Float64() * (span - 1e6)
		for range 2 + rng.IntN(9) {
			page(ip, at)
			at += 3000 + rng.ExpFloat64()*20_000
		}
	}
	for i := range 400 {
		visit(fmt.Sprintf("203.0.113.%d", i%250+1+i/250))
		visit(fmt.Sprintf("2001:db8:%x::%x", i, rng.IntN(9)))
	}
	for range 60 {
		visit("198.51.100.7")
	}
	for i := range 3 {
		at := rng.Float64() * span / 2
		for range 4000 {
			at += 80 + rng.Float64()*60
			hits = append(hits, hit{at, fmt.Sprintf("192.0.2.%d", 10+i), fmt.Sprintf("/products/%d", rng.IntN(500)), 20 + rng.IntN(80), 200})
		}
	}
	for i := range hits {
		hits[i].at += float64(hits[i].took)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, h := range hits {
		ts := 1_772_438_400 + h.at/1000 // 2026-03-02, 08:00
		_, _ = fmt.Fprintf(&b, `{"level":"info","ts":%.3f,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":%q,"remote_port":"4711","client_ip":%[2]q,"proto":"HTTP/2.0","method":"GET","host":"shop.example.com","uri":%q,"headers":{"User-Agent":["Mozilla/5.0"]},"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"shop.example.com"}},"bytes_read":0,"user_id":"","duration":%.3f,"size":5120,"status":%d,"resp_headers":{"Server":["Caddy"]}}`+"\n",
			ts, h.ip, h.path, float64(h.took)/1000, h.was)
	}
	return b.String()
}

// blocksInOrder are the fenced blocks of a text, each with its language.
var blocksInOrder = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// TestFromLogToLimit runs the five steps of docs/choosing.md: each command prints what the document says, and its zones
// can be told to deny.
func TestFromLogToLimit(t *testing.T) {
	dir := caddyrun.Commands(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("access.log", shopLog())
	var commands, caddyfile string
	printed := 0
	for _, block := range blocksInOrder.FindAllStringSubmatch(sectionOf(t, "docs/choosing.md", "How many requests?"), -1) {
		switch text := block[2]; block[1] {
		case "caddyfile":
			caddyfile = text
			write("Caddyfile", text)
		case "sh":
			commands = text
		case "text":
			stdout, stderr, ok := shell(t, dir, "", commands)
			if got := trimLines(stdout); !ok || got != text {
				t.Fatalf("%s\nsuccess %v, %s\ngot\n%s\nwant\n%s", commands, ok, stderr, got, text)
			}
			printed++
		}
	}
	if printed != 3 {
		t.Errorf("%d commands with output, want 3", printed)
	}
	zone, _, _ := strings.Cut(caddyfile[strings.Index(caddyfile, "\tsliding_window"):], "\treverse_proxy")
	stdout, stderr, _ := shell(t, dir, "", "caddy sliding-window suggest access.log --apply")
	if plain := strings.NewReplacer("\t", "", "\n", " "); !strings.Contains(plain.Replace(stdout), plain.Replace(zone)) {
		t.Errorf("the zone of suggest --apply is not that of the document: %s%s", stdout, stderr)
	}
	address := caddyrun.FreeAddress(t)
	process := caddyrun.Start(t, "{\n\tadmin {admin}\n}\nhttp://"+address+" {\n"+zone+"\trespond ok\n}\n", address)
	for line := range strings.Lines(commands) {
		line = strings.TrimSpace(line)
		if !strings.Contains(stdout, line+"\n") {
			t.Errorf("suggest --apply does not print %s:\n%s", line, stdout)
		}
		if out, stderr, ok := shell(t, dir, "", line+" --address "+process.Admin); !ok || !strings.Contains(out, "per_client") {
			t.Errorf("%s: success %v\n%s%s", line, ok, out, stderr)
		}
	}
}

// trimLines takes the blanks off the ends of lines.
func trimLines(text string) string {
	return regexp.MustCompile(`(?m) +$`).ReplaceAllString(text, "")
}
