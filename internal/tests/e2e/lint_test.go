package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/lint"
	"github.com/slidingwindow/caddy-sliding-window/internal/lint/written"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// lintPage has Caddyfiles with mistakes.
const lintPage = "docs/lint.md"

// lintCaddyfile returns what lint finds in a Caddyfile, with texts of its JSON replaced.
func lintCaddyfile(t *testing.T, caddyfile string, replace ...string) []lint.Finding {
	t.Helper()
	config, err := adapt(t, caddyfile)
	if err != nil {
		t.Fatal(err)
	}
	source, err := written.Read("Caddyfile", []byte(caddyfile))
	if err != nil {
		t.Fatal(err)
	}
	c, closeAll, err := lint.Load([]byte(strings.NewReplacer(replace...).Replace(string(config))))
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	return lint.Check(c, source).Findings
}

// syntaxOnly are cases of testdata/adapt with options side by side that are no advice.
var syntaxOnly = []string{"alert", "algorithm", "algorithm_stream", "ban", "enforce", "placeholders", "zone", "share", "redis_hash_keys", "redis_sentinel", "redis_tls"}

// No Caddyfile in the documents, in Caddyfile.example and in testdata/adapt has a finding.
func TestLintExamples(t *testing.T) {
	t.Setenv("REDIS_PASSWORD", "secret")
	t.Setenv("REDIS_HASH_KEYS", "a secret of 16 bytes or more")
	t.Setenv("SLIDING_WINDOW_TEST", "secret")
	examples := make(map[string]string)
	for _, document := range documents(t) {
		text := readFile(t, document)
		if document == lintPage {
			text, _, _ = strings.Cut(text, "\n## SW")
		}
		for i, block := range blocksOf(text, "caddyfile") {
			examples[fmt.Sprint(document, " ", i+1)] = block
		}
	}
	examples["Caddyfile.example"] = readFile(t, "Caddyfile.example")
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		caddyfile, want, _ := strings.Cut(readFile(t, file), "\n----------\n")
		name := strings.TrimSuffix(filepath.Base(file), ".caddyfiletest")
		if strings.HasPrefix(strings.TrimSpace(want), "{") && !slices.Contains(syntaxOnly, name) {
			examples[file] = caddyfile + "\n"
		}
	}
	if len(examples) < 60 {
		t.Errorf("got %d examples, want 60 or more", len(examples))
	}
	certificates := writeCertificates(t)
	secrets := secretsOf(t, map[string]string{"redis": "secret", "sentinel": "secret"})
	for name, example := range examples {
		t.Run(name, func(t *testing.T) {
			for _, f := range lintCaddyfile(t, example, "/etc/caddy/redis", certificates, "/run/secrets", secrets) {
				t.Errorf("line %d: %s %s: %s", f.Line, f.Code, f.Zone, f.What)
			}
		})
	}
}

// mistaken is a Caddyfile with an error, a warning and a note, and what would be written if it was loaded as usual.
const mistaken = `{
	storage file_system storage
}
example.com {
	tls internal
	log {
		output file access.log
	}
	sliding_window {
		zone per_client {
			limit 100 1m
			limit 9000 1h
		}
		zone mails {
			key all
			# lint:ignore SW017 they are few
			limit 500 30d
		}
		zone costly {
			key all
			limit 10 30d
			cost 20
		}
	}
	respond ok
}
`

// The command exits with the status of its findings, and leaves no file behind.
func TestLintCommand(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	dir := caddyrun.Commands(t)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Caddyfile", mistaken)
	write("good", ":8080 {\n\tsliding_window per_client {client_ip} 100 1m\n\trespond ok\n}\n")
	write("refused", ":8080 {\n\tsliding_window per_client {client_ip} many 1m\n}\n")
	write("unloaded.json", `{"apps":{"http":{"servers":{"s":{"routes":[{"handle":[{"handler":"sliding_window"}]}]}}}}}`)
	write("good.json", `{"apps":{"http":{"servers":{"s":{"routes":[{"handle":[{"handler":"sliding_window","zones":[{"name":"a","limits":[{"max":1,"window":"1m"}],"cost":2}]}]}]}}}}}`)
	names := func() (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	before := names()
	for line, want := range map[string]struct {
		status    string
		out, says string // a part of each
	}{
		"caddy sliding-window lint":                                      {"3", "1 error, 1 warning, 1 note.", ""},
		"caddy sliding-window lint --config Caddyfile --json":            {"3", `"errors": 1`, ""},
		"caddy sliding-window lint --config good --adapter caddyfile":    {"0", "No finding.", ""},
		"caddy sliding-window lint --config refused --adapter caddyfile": {"1", "", "many"},
		"caddy sliding-window lint --config unloaded.json":               {"1", "", "no zone"},
		"caddy sliding-window lint --config good.json":                   {"3", "error SW013: zone a: cost 2 is above limit 1 1m", ""},
		"caddy sliding-window lint --config none":                        {"1", "", "no such file"},
	} {
		out, says, _ := shell(t, dir, "", line+"; echo status $?")
		if !strings.Contains(out, want.out) || !strings.HasSuffix(out, "status "+want.status+"\n") || !strings.Contains(says, want.says) {
			t.Errorf("%s: got\n%s\n%s\nwant status %s with %q and %q", line, out, says, want.status, want.out, want.says)
		}
		if want.status != "1" && strings.Contains(says, `"level":"error"`) {
			t.Errorf("%s: the log has %s", line, says)
		}
	}
	if after := names(); !slices.Equal(after, before) {
		t.Errorf("the directory has %q, and had %q", after, before)
	}

	out, _, _ := shell(t, dir, "", "caddy sliding-window lint --json")
	var report lint.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range report.Findings {
		got = append(got, fmt.Sprintf("%s:%d %s %s %s", f.File, f.Line, f.Severity, f.Code, f.Zone))
		if f.What == "" || f.Cause == "" || f.Cure == "" || f.Link == "" {
			t.Errorf("a field is missing: %+v", f)
		}
	}
	want := []string{
		"Caddyfile:12 warning SW012 per_client",
		"Caddyfile:21 error SW013 costly",
		"Caddyfile:21 note SW017 costly",
	}
	if !slices.Equal(got, want) || report.Errors != 1 || report.Warnings != 1 || report.Notes != 1 {
		t.Errorf("found %q, want %q: %+v", got, want, report)
	}

	// With a log, more rules run; a log that cannot be read is broken input.
	write("access.log", `{"level":"info","ts":1795000000.5,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","remote_port":"1","client_ip":"192.0.2.1","proto":"HTTP/1.1","method":"GET","host":"localhost:8080","uri":"/","headers":{}},"duration":0.1,"size":2,"status":200}`+"\n")
	write("many.log", strings.Repeat(readFile(t, filepath.Join(dir, "access.log")), 1200))
	for line, want := range map[string][2]string{
		"--log access.log":                {"No finding.", "status 0"},
		"--log many.log":                  {"warning SW021: zone per_client: one address has sent 100 % of the requests in the log", "status 0"},
		"--log many.log --log access.log": {"warning SW022: zone per_client: limit 100 in 1m would have denied 91.7 % of 1201 requests in the log", "status 0"},
		"--log none.log":                  {"", "status 1"},
		"--log good":                      {"", "status 1"},
		"--log -":                         {"", "status 1"},
	} {
		out, says, _ := shell(t, dir, "", "caddy sliding-window lint --config good --adapter caddyfile "+line+"; echo status $?")
		if !strings.Contains(out, want[0]) || !strings.HasSuffix(out, want[1]+"\n") || want[1] == "status 1" && !strings.Contains(says, "Error: ") {
			t.Errorf("%s: got\n%s\n%s\nwant %q", line, out, says, want)
		}
	}
}
