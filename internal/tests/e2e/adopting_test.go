package e2e_test

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

const adopting = "docs/adopting.md"

// measured returns the figure of a row and a column of a table in bench/RESULTS.md.
func measured(t *testing.T, table, row string, column int) float64 {
	t.Helper()
	_, text, _ := strings.Cut(readFile(t, "bench/RESULTS.md"), "<!-- bench:"+table+" -->\n")
	text, _, _ = strings.Cut(text, "<!-- /bench:"+table+" -->\n")
	m := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` \|(.*)\|$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("table %s of bench/RESULTS.md has no row %q", table, row)
	}
	figure, _, _ := strings.Cut(strings.TrimSpace(strings.Split(m[1], "|")[column]), " ")
	value, err := strconv.ParseFloat(strings.ReplaceAll(figure, ",", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// TestAdoptingFigures holds that what docs/adopting.md says of cores and memory follows from bench/RESULTS.md.
func TestAdoptingFigures(t *testing.T) {
	const caddy, server = 2, 3 // columns of the table http
	without := measured(t, "http", "no directive", caddy)
	cores := []float64{ // in µs for each request
		measured(t, "http", "Redis, zset", caddy) - without, measured(t, "http", "Redis, zset", server), measured(t, "http", "memory, zset", caddy) - without,
	}
	memory := []float64{measured(t, "redisbytes", "zset", 0), measured(t, "redisbytes", "gcra, pack", 0), measured(t, "memorybytes", "zset", 0)}
	figures := 0
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-9,]+) \| (.*) \|$`).FindAllStringSubmatch(sectionOf(t, adopting, "What it needs"), -1) {
		n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		for i, cell := range strings.Split(m[2], " | ") {
			want, tolerance := n*cores[i]/1e6, 0.0051
			number, isMemory := strings.CutSuffix(cell, " MB")
			if isMemory {
				want, tolerance = n*memory[i]/1e6, 0.51
			}
			if got, err := strconv.ParseFloat(number, 64); err != nil || math.Abs(got-want) > tolerance {
				t.Errorf("%s: %q, want %.3f, %v", m[1], cell, want, err)
			}
			figures++
		}
	}
	if figures != 15 {
		t.Errorf("%d figures, want 15", figures)
	}
}

// TestAdoptingLeaves holds that the commands of docs/adopting.md leave nothing in Redis that does not expire, and no user.
func TestAdoptingLeaves(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	if err := client.Do(t.Context(), append([]any{"ACL", "SETUSER", "caddy", "on", ">secret", "~sw:*", "-@all"}, words(redis.Permissions)...)...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"", "a secret of 16 bytes or more"} {
		s := redis.New(redis.Options{Addresses: []string{server.Addr}, Username: "caddy", Password: "secret", KeySecret: secret, Timeout: 10 * time.Second})
		t.Cleanup(func() { _ = s.Close() })
		for _, algorithm := range []window.Algorithm{window.Zset{}, window.Log{}, window.Stream{}, window.GCRA{}, window.Slices{}} {
			charge := window.Charge{Zone: "api", Key: "anna", Cost: 1, Algorithm: algorithm, Policies: []window.Policy{{Limit: 1, Window: time.Hour}}}
			if _, err := s.Take(t.Context(), []window.Charge{charge}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Engine().(interface {
			WriteOverrides(ctx context.Context, known, next string, gone []string, records map[string]string) (string, error)
		}).WriteOverrides(t.Context(), "", "1", nil, map[string]string{"id": "{}"}); err != nil {
			t.Fatal(err)
		}
	}
	lasting := func() (keys []string) {
		for _, key := range client.Keys(t.Context(), "*").Val() {
			if client.TTL(t.Context(), key).Val() < 0 {
				keys = append(keys, key)
			}
		}
		return keys
	}
	if len(lasting()) != 2 {
		t.Errorf("%q do not expire before, want the overrides with and without hash_keys", lasting())
	}
	for line := range strings.Lines(shellBelow(t, adopting, "How to leave")) {
		command := strings.TrimPrefix(strings.ReplaceAll(line, "'", ""), "redis-cli ")
		if err := client.Do(t.Context(), words(command)...).Err(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	users := client.Do(t.Context(), "ACL", "USERS").String()
	if left := lasting(); len(left) > 0 || strings.Contains(users, "caddy") {
		t.Errorf("%q do not expire, and the users are %s", left, users)
	}
}

func words(text string) (all []any) {
	for _, w := range strings.Fields(text) {
		all = append(all, w)
	}
	return all
}
