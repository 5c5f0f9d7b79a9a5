package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint/written"
)

// check returns the report on a Caddyfile, by logs if there are any.
func check(t *testing.T, caddyfile string, logs ...string) *lint.Report {
	t.Helper()
	t.Setenv("REDIS_PASSWORD", "secret")
	t.Setenv("REDIS_HASH_KEYS", "a secret of 16 bytes or more")
	file := filepath.Join(t.TempDir(), "Caddyfile")
	source, err := written.Read(file, []byte(caddyfile))
	if err != nil {
		t.Fatalf("%v\n%s", err, caddyfile)
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": file})
	if err != nil {
		t.Fatalf("%v\n%s", err, caddyfile)
	}
	c, closeAll, err := lint.Load(config)
	if err != nil {
		t.Fatalf("%v\n%s", err, caddyfile)
	}
	defer closeAll()
	if len(logs) > 0 {
		if err := c.ReadLogs(file, config, logs); err != nil {
			t.Fatal(err)
		}
	}
	return lint.Check(c, source)
}

// codes returns what was found, as code and line.
func codes(r *lint.Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, fmt.Sprintf("%s:%d", f.Code, f.Line))
	}
	return all
}

// section is a section of docs/lint.md.
type section struct {
	text   string
	blocks []string
}

func sections(t *testing.T) map[string]section {
	t.Helper()
	page, err := os.ReadFile("../../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]section)
	for _, part := range strings.Split(string(page), "\n## ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		s := section{text: text}
		for _, m := range regexp.MustCompile("(?ms)^```caddyfile\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			s.blocks = append(s.blocks, m[1])
		}
		all[name] = s
	}
	return all
}

// A zone that marks bounds no other, and denies before no other; one that denies goes before it.
func TestMarkDeniesNothing(t *testing.T) {
	for enforces, want := range map[[2]string]string{
		{"on", "on"}: "[SW012:8]", {"on", "mark"}: "[SW012:8]", {"mark", "on"}: "[]", {"mark", "mark"}: "[]",
	} {
		text := fmt.Sprintf("http://localhost {\nsliding_window {\nzone a {\nlimit 5 1m\nenforce %s\n}\nzone b {\nlimit 9 1m\nenforce %s\n}\n}\n}\n", enforces[0], enforces[1])
		if got := fmt.Sprint(codes(check(t, text))); got != want {
			t.Errorf("%v: got %s, want %s", enforces, got, want)
		}
	}
	for enforce, want := range map[string]string{"on": "[]", "mark": "[SW007:4]"} {
		text := "http://localhost {\nsliding_window {\nzone a {\nkey {query.user}\nlimit 5 1m\n}\nzone b {\nlimit 9 1m\nenforce " + enforce + "\n}\n}\n}\n"
		if got := fmt.Sprint(codes(check(t, text))); got != want {
			t.Errorf("%s: got %s, want %s", enforce, got, want)
		}
	}
}

// Each rule has a section with its title, severity and cause, a Caddyfile in which the rule alone finds something, with a
// line, and one in which no rule does.
func TestRules(t *testing.T) {
	all := sections(t)
	for i, rule := range lint.Rules {
		t.Run(rule.Code, func(t *testing.T) {
			if want := fmt.Sprintf("SW%03d", i+1); rule.Code != want {
				t.Errorf("the code is %s, want %s", rule.Code, want)
			}
			s, ok := all[rule.Code]
			if !ok || len(s.blocks) != 2 {
				t.Fatalf("docs/lint.md has %d Caddyfiles below ## %s, want 2", len(s.blocks), rule.Code)
			}
			said := strings.Join(strings.Fields(s.text), " ")
			cause := strings.ToUpper(rule.Cause[:1]) + rule.Cause[1:] + "."
			if want := fmt.Sprintf("**%s** (%s). %s", rule.Title, rule.Severity, cause); !strings.HasPrefix(said, want) {
				t.Errorf("the section does not begin with %q", want)
			}
			var fired, quiet []string // logs
			if rule.NeedsLog {
				fired, quiet = []string{accessLog(t, 40)}, []string{accessLog(t, 40)}
			}
			if rule.Code == "SW021" {
				fired[0] = accessLog(t, 1)
			}
			fires := check(t, s.blocks[0], fired...)
			for _, f := range fires.Findings {
				if f.Code != rule.Code || f.Severity != rule.Severity || f.Line < 1 || f.What == "" || f.Cure == "" || !strings.HasSuffix(f.Link, "docs/lint.md#"+strings.ToLower(rule.Code)) {
					t.Errorf("found %+v", f)
				}
			}
			if len(fires.Findings) != 1 {
				t.Errorf("found %d, want 1: %q", len(fires.Findings), codes(fires))
			}
			if clean := check(t, s.blocks[1], quiet...); len(clean.Findings) > 0 {
				t.Errorf("found in the second Caddyfile: %+v", clean.Findings)
			}
		})
	}
	if _, ok := all["SW000"]; !ok || len(all) < len(lint.Rules)+1 {
		t.Errorf("docs/lint.md has %d sections", len(all))
	}
}

// accessLog writes a log of Caddy with a request a second for 20 minutes, of a number of clients in turn.
func accessLog(t *testing.T, clients int) string {
	t.Helper()
	var log strings.Builder
	for n := range 1200 {
		fmt.Fprintf(&log, `{"level":"info","ts":%d.5,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.%d","remote_port":"1024",`+
			`"client_ip":"192.0.2.%[2]d","proto":"HTTP/1.1","method":"GET","host":"localhost:8080","uri":"/","headers":{}},"duration":0.001,"size":2,"status":200}`+"\n",
			1795000000+n, 1+n%clients)
	}
	file := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(file, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Each limit of a zone is looked at by itself.
func TestLimitsInLogs(t *testing.T) {
	const caddyfile = `:8080 {
	sliding_window {
		zone per_client {
			limit 20 1s
			limit 100 1m
			limit 1000 1h
		}
		zone wrong {
			key all
			limit 500 1s
			count_if status 4xx
		}
	}
	respond ok
}
`
	got := codes(check(t, caddyfile, accessLog(t, 1)))
	want := []string{"SW021:3", "SW023:4", "SW022:6"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// A limit of an address is never reached if its network has no more, and a network's is looked at by itself.
func TestTiersInLogs(t *testing.T) {
	const caddyfile = `:8080 {
	sliding_window {
		zone crawlers {
			limit 60 1m
			limit 900 1h
			limit 50 1m tier 24/48
			limit 1000 1h tier 16/32
			limit 90000 1d tier 16/32
		}
	}
	respond ok
}
`
	got := codes(check(t, caddyfile, accessLog(t, 40)))
	if want := []string{"SW012:4", "SW023:4", "SW022:6", "SW012:8"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// Requests at the same time are looked at by themselves, before tiers, and alone. No rule takes them for a limit with a window.
func TestConcurrentInLogs(t *testing.T) {
	file := accessLog(t, 1)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	slow := strings.ReplaceAll(string(text), `"duration":0.001`, `"duration":3.5`)
	if err := os.WriteFile(file, []byte(slow), 0o600); err != nil {
		t.Fatal(err)
	}
	for zones, want := range map[string][]string{
		"zone chats {\n limit 500 1h\n limit 10 1m tier 24/48\n concurrent 1\n}\nzone free {\n key all\n concurrent 100\n}": {"SW021:3", "SW022:5", "SW022:6"},
		"zone full {\n key all\n concurrent 2 {\n hold status\n }\n}":                                                       {"SW022:5"},
	} {
		if got := codes(check(t, ":8080 {\nsliding_window {\n"+zones+"\n}\nrespond ok\n}\n", file)); !slices.Equal(got, want) {
			t.Errorf("%s: found %q, want %q", zones, got, want)
		}
	}
}

// Two Caddys cannot divide one request at the same time, alone or beside limits.
func TestConcurrentShared(t *testing.T) {
	const caddyfile = `{
	sliding_window {
		store redis redis://localhost:6379/0
		on_error local {
			share
		}
	}
}
:8080 {
	sliding_window {
		zone one {
			concurrent 1
		}
		zone two {
			limit 100 1m
			concurrent 1
		}
		zone more {
			concurrent 2
		}
	}
	respond ok
}
`
	got := codes(check(t, caddyfile))
	if want := []string{"SW015:12", "SW015:16"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// A comment hides what its rule finds on its line or the line below. One that hides nothing, names no rule or gives no reason
// is a finding.
func TestIgnored(t *testing.T) {
	const caddyfile = `:8080 {
	sliding_window {
		zone a {
			# lint:ignore SW005 it is a test
			key static
			limit 5 30d # lint:ignore SW017 for a reason
		}
		zone b {
			# lint:ignore SW005
			key fixed
			# lint:ignore SW099 there is no such rule
			# lint:ignore SW013 it does not fire
			# lint:ignore SW022 no log was read
			limit 4 30d
		}
	}
	respond ok
}
`
	got := codes(check(t, caddyfile))
	want := []string{"SW000:9", "SW005:10", "SW000:11", "SW000:12", "SW017:14"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
