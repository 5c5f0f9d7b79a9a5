package e2e_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// A ban of one Caddy is in force on all, and asks Redis nothing. It outlives a restart of all Caddys and the end of Redis.
// Strikes while Redis is away count where they are, and all of it is in force everywhere when Redis is back, empty.
func TestBanInAFleet(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleetOf(t, strings.NewReplacer("limit 1000 1h", "limit 2 1s\nban 30m {\nafter 2 in 1m\nstatus 403\nexcept path /free\n}", "timeout 2s", "timeout 2s\nhash_keys 0123456789abcdef").Replace(caddyrun.Sharing))
	ban := func(i int, key string) {
		t.Helper()
		caddyrun.Eventually(t, 60*time.Second, key+" is banned", func() bool { return f.holds(i, key, http.StatusForbidden) })
	}
	ban(0, "anna")
	f.everywhere("the ban is in force", http.StatusForbidden, "anna")
	if !f.holds(0, "bob", http.StatusOK) {
		t.Error("another key is banned")
	}

	for path, banned := range map[string]bool{"": true, "free": false} {
		body := fmt.Sprintf(`{"request":{"uri":"http://%s/%s","headers":{"X-Key":"anna"},"remote":"192.0.2.1"}}`, f.addresses[1], path)
		_, text := f.caddys[1].Tell(t, http.MethodPost, "/sliding_window/inspect", "application/json", body)
		if strings.Contains(text, `"ban":{"until":"`) != banned || banned && !strings.HasSuffix(strings.TrimSpace(text), `"would_pass":false}`) {
			t.Errorf("inspect of /%s says %s", path, text)
		}
	}

	commands := func() (n int) {
		t.Helper()
		info, err := f.server.Client(t).Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		n, _ = strconv.Atoi(regexp.MustCompile(`total_commands_processed:(\d+)`).FindStringSubmatch(info)[1])
		return n
	}
	before, begin := commands(), time.Now()
	for range 3000 {
		if a := caddyrun.MustGet(t, f.client, f.addresses[1], "anna"); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "#abnormal-usage-detected") || a.Header.Get("Retry-After") == "" {
			t.Fatalf("during the ban: %d, %v\n%s", a.Status, a.Header, a.Body)
		}
	}
	// Each Caddy looks for what others have changed, and at the server.
	if n, took := commands()-before, time.Since(begin); n > 100+int(took.Seconds()*30) {
		t.Errorf("%d commands for 3000 banned requests in %s", n, took)
	}

	for i := range f.caddys {
		f.caddys[i].End(t)
	}
	for i := range f.caddys { // none that knows it is left
		f.start(i)
	}
	f.everywhere("the ban outlives a restart", http.StatusForbidden, "anna")
	f.server.Kill()
	ban(2, "carl") // by local counts
	f.everywhere("the ban outlives Redis", http.StatusForbidden, "anna")
	f.server.Restart(t)
	f.everywhere("all bans are in force", http.StatusForbidden, "anna", "carl")
}

// Nothing that a client does prolongs its ban, and the next one is longer.
func TestBanEnds(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	f := startFleetOf(t, strings.Replace(caddyrun.Sharing, "limit 1000 1h", "limit 2 1s\nban 2s {\nstatus 403\n}", 1))
	for length := 2 * time.Second; length <= 4*time.Second; length *= 2 {
		caddyrun.Eventually(t, 60*time.Second, "the ban begins", func() bool { return f.holds(0, "anna", http.StatusForbidden) })
		begin := time.Now()
		caddyrun.Eventually(t, 60*time.Second, "the ban ends", func() bool { return f.holds(0, "anna", http.StatusOK) })
		if took := time.Since(begin); took < length-time.Second {
			t.Errorf("a ban of %s lasts %s", length, took)
		}
	}
}

// What is wrong with a ban is told at its line, with the option and the cure.
func TestRefusedBan(t *testing.T) {
	ban := func(options string) string { return `"limits":[{"max":5,"window":"1m"}],"ban":{` + options + `}` }
	block := func(option string) string { return "limit 5 1m\nban 10m {\n" + option + "\n}" }
	const shared = ` does not tell clients apart, so that one would have the others banned; write one that does, such as key {client_ip}, or take out ban`
	checkRefusals(t, "http:// {\n\tsliding_window {\n\t\tzone api {\n%s\n\t\t}\n\t}\n}\n", 4,
		`{"handler":"sliding_window","zones":[{"name":"api",%s}]}`, []refusal{
			{"limit 5 1m\nban", 1, ``, `zone api: an argument is missing after 'ban'; write ban <length> { ... }, such as ban 10m; is a {$VARIABLE} empty?`},
			{"limit 5 1m\nban 10m 5m", 1, ``, `zone api: wrong argument count or unexpected line ending after '10m'; write ban <length> { ... }, such as ban 10m`},
			{"limit 5 1m\nban forever", 1, ban(`"for":"forever"`), `zone api: ban: for "forever" is not a duration, such as 90s, 5m or 1d`},
			{"limit 5 1m\nban 500ms", 1, ban(`"for":"500ms"`), `zone api: ban: for 500ms: must be from 1s to 8784h`},
			{"limit 5 1m\nban 367d", 1, ban(`"for":"367d"`), `zone api: ban: for 367d: must be from 1s to 8784h`},
			{block(`after 3`), 2, ban(`"for":"10m","after":3`), `zone api: ban: after 3: the time is missing in which the denials come; write after 3 in 1h`},
			{block(`after 3 within 1h`), 2, ``, `zone api: after: write after <denials> in <duration>, such as after 3 in 1h`},
			{block(`after three in 1h`), 2, ban(`"for":"10m","after":"three","in":"1h"`), `zone api: ban: after "three" is not a whole number`},
			{block(`after 101 in 1h`), 2, ban(`"for":"10m","after":101,"in":"1h"`), `zone api: ban: after 101: must be from 1 to 100 denials`},
			{block(`after 3 in 500ms`), 2, ban(`"for":"10m","after":3,"in":"500ms"`), `zone api: ban: in 500ms: must be from 1s to 8784h`},
			{block(`factor double`), 2, ban(`"for":"10m","factor":"double"`), `zone api: ban: factor "double" is not a number; write one, such as factor 2`},
			{block(`factor 0.5`), 2, ban(`"for":"10m","factor":0.5`), `zone api: ban: factor 0.5: must be 1, or from 1.1 to 1000000000`},
			{block(`factor 1e30`), 2, ban(`"for":"10m","factor":"1e30"`), `zone api: ban: factor 1e30: must be 1, or from 1.1 to 1000000000`},
			{block(`factor NaN`), 2, ban(`"for":"10m","factor":"NaN"`), `zone api: ban: factor "NaN" is not a number; write one, such as factor 2`},
			{block(`factor`), 2, ``, `zone api: factor takes one value: write factor 2`},
			{block(`max 5m`), 2, ban(`"for":"10m","max":"5m"`), `zone api: ban: max 5m: must be from 10m to 8784h`},
			{block(`halve ""`), 2, ``, `zone api: halve "": the value is empty; write one, or take the line out`},
			{block(`spread 0.2`), 2, ban(`"for":"10m","spread":0.2`), `zone api: ban: spread "0.2" is not a percentage; write a number and %`},
			{block(`spread 101%`), 2, ban(`"for":"10m","spread":"101%"`), `zone api: ban: spread 101%: must be from 0% to 100%`},
			{block(`status 200`), 2, ban(`"for":"10m","status":200`), `zone api: ban: status 200: must be from 400 to 599`},
			{block(`status 0`), 2, ``, `zone api: status 0: must be from 400 to 599`},
			{block("silent\nsilent"), 3, ``, `zone api: silent is given twice; keep one`},
			{block(`silent yes`), 2, ``, `zone api: wrong argument count or unexpected line ending after 'yes'; write silent alone`},
			{block(`permanent`), 2, ``, `zone api: unrecognized subdirective "permanent" of ban; use after, factor, max, halve, spread, status, silent or except`},
			{block(`except`), 2, ban(`"for":"10m","except":[{}]`), `zone api: ban: except: no matcher, so every request would match; name one, or take except out`},
			{block(`except /health`), 2, ``, `zone api: except /health: the name of the matcher is missing; write except path /health`},
			{block(`except client_pi 10.0.0.0/8`), 2, ``, `zone api: except: unrecognized matcher "client_pi"; write client_ip`},
			{"key all\nlimit 5 1m\nban 10m", 2, ban(`"for":"10m"`) + `,"key":"all"`, `zone api: ban: key all` + shared},
			{"key {host}{path}\nlimit 5 1m\nban 10m", 2, ban(`"for":"10m"`) + `,"key":"{http.request.host}{http.request.uri.path}"`, `zone api: ban: key {host}{path}` + shared},
		})
}
