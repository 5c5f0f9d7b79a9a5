package upgrading

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

var former1 = flag.String("write-fixture", "", "write the fixture anew, with the `binary` of a build with format 1")

// fixture has the commands that make what Caddys with format 1 left in Redis: a counter of anna in each zone that is exhausted, an
// override by which bob is denied, and an order by which zone ordered is in shadow. Counters last until 2036. The words are
// quoted as in Go, and {until} is an hour from now.
const fixture = "testdata/format-1.txt"

// TestFormerFixture starts three Caddys on what those with the former format left. They begin with empty counters, leave the former
// ones as they are, and do what operators told the former Caddys.
func TestFormerFixture(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	if *former1 != "" {
		writeFixture(t, server, *former1)
		return
	}
	loadFixture(t, client)
	before := formerCounters(t, client)
	if len(before) != len(zones) {
		t.Fatalf("the fixture has the counters %q, want one in each of %d zones", slices.Sorted(maps.Keys(before)), len(zones))
	}
	f := newFleet(t, server, caddyrun.Binary(t))
	for _, site := range f.sites {
		caddyrun.Eventually(t, 20*time.Second, "bob is denied by the override", func() bool { return get(t, site, "zset", "bob") == http.StatusTooManyRequests })
		caddyrun.Eventually(t, 20*time.Second, "zone ordered is in shadow", func() bool { return get(t, site, "ordered", "anna") == http.StatusOK })
	}
	f.use("anna")
	f.exhaust("anna")
	f.passed("anna", limit, limit)
	if after := formerCounters(t, client); !maps.Equal(before, after) {
		t.Errorf("counters of the former format were changed: %q, and were %q", after, before)
	}
}

// formerCounters returns the counters of the former format by their names, as Redis dumps them.
func formerCounters(t *testing.T, client *goredis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range client.Keys(t.Context(), "sw:1-*").Val() {
		all[key] = client.Dump(t.Context(), key).Val()
	}
	return all
}

// get returns the status of an answer.
func get(t *testing.T, site, zone, key string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+site+"/"+zone, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func loadFixture(t *testing.T, client *goredis.Client) {
	t.Helper()
	text, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "{until}", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var words []any
		for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				t.Fatalf("%s: %v: %s", fixture, err, line)
			}
			word, _ := strconv.Unquote(quoted)
			words, line = append(words, word), line[len(quoted):]
		}
		if err := client.Do(t.Context(), words...).Err(); err != nil {
			t.Fatalf("%s: %v: %q", fixture, err, words)
		}
	}
}

// writeFixture runs three Caddys of a binary, and writes what they leave in Redis.
func writeFixture(t *testing.T, server *redistest.Server, binary string) {
	t.Helper()
	f := newFleet(t, server, binary)
	for path, body := range map[string]string{
		"overrides/set": `{"zone":"zset","key":"bob","deny":true,"reason":"TICKET-7","by":"anna"}`,
		"enforce":       `{"zone":"ordered","mode":"shadow","ttl":"1h","reason":"TICKET-8","by":"anna"}`,
	} {
		if status, answer := f.runs[0].Tell(t, http.MethodPost, "/sliding_window/"+path, "application/json", body); status >= 300 {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	f.use("anna")
	f.exhaust("anna")
	f.passed("anna", limit, limit)
	for _, p := range f.runs {
		p.End(t)
	}
	client, ctx := server.Client(t), t.Context()
	var text strings.Builder
	text.WriteString("# What Caddys with format 1 left in Redis: see fixture_test.go.\n")
	add := func(words ...any) {
		for i, w := range words {
			words[i] = strconv.QuoteToASCII(fmt.Sprint(w))
		}
		_, _ = fmt.Fprintln(&text, words...)
	}
	for _, key := range slices.Sorted(slices.Values(client.Keys(ctx, "sw:*").Val())) {
		switch kind := client.Type(ctx, key).Val(); kind {
		case "string":
			add("SET", key, client.Get(ctx, key).Val())
		case "hash":
			all := client.HGetAll(ctx, key).Val()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				add("HSET", key, name, regexp.MustCompile(`("until":")[^"]*`).ReplaceAllString(all[name], "${1}{until}"))
			}
		case "zset":
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				add("ZADD", key, strconv.FormatFloat(z.Score, 'f', -1, 64), z.Member)
			}
		case "stream":
			entries, err := client.Do(ctx, "XRANGE", key, "-", "+").Slice()
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				entry := e.([]any)
				add(append([]any{"XADD", key, entry[0]}, entry[1].([]any)...)...)
			}
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		if until := client.PExpireTime(ctx, key).Val(); until > 0 && strings.HasPrefix(key, "sw:1-") {
			add("PEXPIREAT", key, until.Milliseconds())
		}
	}
	if err := os.WriteFile(fixture, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
