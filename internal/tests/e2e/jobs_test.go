package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// jobZones are the zones of docs/operating.md, each for some values of X-Key, in place of the one of caddyrun.Sharing.
const jobZones = `	@client header_regexp X-Key ^[0-9.]+$
	sliding_window @client {
		zone per_client {
			key {header.X-Key}
			limit 2 1h
			top_talkers
		}
	}
	@user header X-Key user-*
	sliding_window @user {
		zone candidate {
			key {header.X-Key}
			limit 0 1h
			enforce shadow
		}
	}
	@wrong header X-Key wrong
	@login header_regexp X-Key ^(wrong|right)$
	sliding_window @login {
		zone failed_logins {
			key all
			limit 3 1h
			{count_if}
		}
	}
	@model header X-Key model
	sliding_window @model {
		zone tokens {
			key {header.X-Key}
			limit 100 1h
			{settle}
		}
	}
	header Content-Type application/json
	respond @wrong no 401
	respond ` + "`" + `{"usage":{"prompt_tokens":30,"completion_tokens":270,"total_tokens":300}}` + "`" + `
}
`

// TestEightDailyJobs does the jobs at the top of docs/operating.md on three Caddys with one Redis, by the commands and lines
// that are there. Each command is run beside the first Caddy, and has its effect on the two others.
func TestEightDailyJobs(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	intro, _, _ := strings.Cut(readFile(t, "docs/operating.md"), "\n## ")
	rows := regexp.MustCompile("(?m)^\\| \\[.*?\\]\\([^)]+\\).*? \\| `([^`]+)`[^|]* \\| (?:`([^`]+)` )?\\|$").FindAllStringSubmatch(intro, -1)
	if len(rows) != 8 {
		t.Fatalf("docs/operating.md begins with %d jobs, want 8: %q", len(rows), rows)
	}
	const who, unblock, raise, ban, enforce, panics, logins, tokens = 0, 1, 2, 3, 4, 5, 6, 7
	global, _, _ := strings.Cut(caddyrun.Sharing, "\tsliding_window {\n\t\tzone api")
	f := startFleetOf(t, global+strings.NewReplacer("{count_if}", rows[logins][1], "{settle}", rows[tokens][1]).Replace(jobZones))

	dir := caddyrun.Commands(t)
	if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), fmt.Appendf(nil, "{\n\tadmin %s\n}\n", f.caddys[0].Admin), 0o600); err != nil {
		t.Fatal(err)
	}
	admins := strings.NewReplacer("10.0.0.1:2019", f.caddys[0].Admin, "10.0.0.2:2019", f.caddys[1].Admin, "10.0.0.3:2019", f.caddys[2].Admin)
	run := func(line string) string {
		t.Helper()
		stdout, stderr, ok := shell(t, dir, "", admins.Replace(line))
		if !ok || stdout == "" {
			t.Fatalf("%s: got %q, and %q", line, stdout, stderr)
		}
		return stdout
	}
	others := func(what string, status int, keys ...string) {
		t.Helper()
		for i := 1; i < len(f.caddys); i++ {
			for _, key := range keys {
				caddyrun.Eventually(t, 20*time.Second, fmt.Sprintf("%s: %s gets %d at Caddy %d", what, key, status, i), func() bool { return f.holds(i, key, status) })
			}
		}
	}
	times := func(n int, key string, status int) {
		t.Helper()
		for range n {
			caddyrun.Eventually(t, 20*time.Second, fmt.Sprint(key, " gets ", status), func() bool { return f.holds(0, key, status) })
		}
	}
	inspected := func(what, zone, key, want string) { // which spends nothing
		t.Helper()
		for i := 1; i < len(f.caddys); i++ {
			caddyrun.Eventually(t, 20*time.Second, fmt.Sprintf("%s: %s at Caddy %d", what, want, i), func() bool {
				_, text := f.caddys[i].Tell(t, http.MethodPost, "/sliding_window/inspect", "application/json", fmt.Sprintf(`{"zone":%q,"key":%q}`, zone, key))
				return strings.Contains(text, want)
			})
		}
	}
	const client, another, banned, elsewhere = "192.0.2.1", "192.0.2.2", "198.51.100.7", "203.0.113.9"

	times(2, client, http.StatusOK)
	times(2, another, http.StatusOK)
	others("the limit is used up", http.StatusTooManyRequests, client, another)
	if out := run(rows[who][1]); !regexp.MustCompile(`3 Caddys: \d+ requests denied`).MatchString(out) || !regexp.MustCompile(`(?m)^ 192\.0\.2\.1 `).MatchString(out) {
		t.Errorf("who is limited: got\n%s", out)
	}

	run(rows[unblock][1])
	others("unblocked", http.StatusOK, client)
	others("not unblocked", http.StatusTooManyRequests, another)

	run(rows[raise][1])
	run(rows[ban][1])
	for range 3 {
		others("raised", http.StatusOK, client)
	}
	others("not raised", http.StatusTooManyRequests, another)
	inspected("the ban", "per_client", banned, `"decided_by":"override"`)
	others("banned", http.StatusTooManyRequests, banned)
	others("not banned", http.StatusOK, elsewhere)
	run(rows[raise][2])
	run(rows[ban][2])
	others("no longer raised", http.StatusTooManyRequests, client)
	inspected("the end of the ban", "per_client", banned, `"would_pass":true`)
	others("no longer banned", http.StatusOK, banned)

	var users []string
	for i := range 50 {
		users = append(users, fmt.Sprint("user-", i))
	}
	deniedAt := func(i int) (denied []string) {
		for _, user := range users {
			if f.holds(i, user, http.StatusTooManyRequests) {
				denied = append(denied, user)
			}
		}
		return denied
	}
	before := []string{}
	for _, step := range []struct {
		share       string
		least, most int
	}{{"10%", 1, 12}, {"50%", 15, 40}, {"100%", 50, 50}} {
		run(strings.Replace(rows[enforce][1], "10%", step.share, 1))
		denied := deniedAt(0)
		if n := len(denied); n < step.least || n > step.most {
			t.Errorf("%s of 50 clients: %d are denied", step.share, n)
		}
		if slices.ContainsFunc(before, func(user string) bool { return !slices.Contains(denied, user) }) {
			t.Errorf("%s lets pass who was denied before: %q, before %q", step.share, denied, before)
		}
		for i := 1; i < len(f.caddys); i++ {
			caddyrun.Eventually(t, 20*time.Second, fmt.Sprint(step.share, " at Caddy ", i), func() bool { return slices.Equal(deniedAt(i), denied) })
		}
		before = denied
	}
	run(rows[enforce][2])

	times(5, "right", http.StatusOK)
	times(3, "wrong", http.StatusUnauthorized)
	others("three failed log-ins", http.StatusTooManyRequests, "wrong", "right")

	times(1, "model", http.StatusOK)
	inspected("tokens are charged", "tokens", "model", `"used":300`)
	others("tokens are spent", http.StatusTooManyRequests, "model")
	others("in shadow", http.StatusOK, users...)

	run(rows[panics][1])
	others("everything passes", http.StatusOK, another, "right", "model")
	others("everything passes", http.StatusUnauthorized, "wrong")
	run(rows[panics][2])
	others("as configured", http.StatusTooManyRequests, another, "wrong", "model")

	f.server.Kill()
	others("Redis is away", http.StatusTooManyRequests, another)
	for i := range 3 { // three failures in a row
		times(1, fmt.Sprint("203.0.113.", 10+i), http.StatusOK)
	}
	status := regexp.MustCompile("`(caddy sliding-window status)`").FindStringSubmatch(intro)
	if status == nil {
		t.Fatal("docs/operating.md does not say how to see that Redis is away")
	}
	caddyrun.Eventually(t, 20*time.Second, "status says that Redis is away", func() bool {
		return regexp.MustCompile(`away +20`).MatchString(run(status[1]))
	})
	f.server.Restart(t)
	caddyrun.Eventually(t, 20*time.Second, "status says that Redis is back", func() bool {
		return regexp.MustCompile(` ok `).MatchString(run(status[1]))
	})
}
