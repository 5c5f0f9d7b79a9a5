package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// ruleNames matches the name of each rule of docs/alerts.yml, and the section that its runbook_url leads to.
var ruleNames = regexp.MustCompile(`(?s)- alert: (\w+)\n.*?runbook_url: "https://github\.com/slidingwindow/caddy-sliding-window/blob/main/docs/runbook\.md#(\w+)"\n`)

// Each rule leads to its section of the runbook, which has three commands that work, and says when to wake somebody.
func TestRunbook(t *testing.T) {
	t.Parallel() // each Caddy is a process of its own
	alerts, runbook := readFile(t, "docs/alerts.yml"), readFile(t, "docs/runbook.md")
	rules := ruleNames.FindAllStringSubmatch(alerts, -1)
	if n := strings.Count(alerts, "- alert: "); n < 13 || len(rules) != n || strings.Count(runbook, "\n## ") != n {
		t.Fatalf("%d rules, %d with a runbook_url, and %d sections", n, len(rules), strings.Count(runbook, "\n## "))
	}
	dir, _ := operate(t)
	server, source := redistest.Start(t), sourceOf(t)
	for _, rule := range rules {
		if rule[2] != strings.ToLower(rule[1]) {
			t.Errorf("%s leads to %s", rule[1], rule[2])
		}
		section := sectionOf(t, "docs/runbook.md", rule[1])
		commands := regexp.MustCompile("`((?:caddy|grep|redis-cli|date) [^`]+)`").FindAllStringSubmatch(section, -1)
		if len(commands) != 3 || strings.Count(section, "Wake ") != 1 {
			t.Errorf("%s has %d commands, want 3, and says %d times when to wake somebody", rule[1], len(commands), strings.Count(section, "Wake "))
		}
		for _, command := range commands {
			line := command[1]
			if m := regexp.MustCompile(`^grep '(.*)' caddy\.log$`).FindStringSubmatch(line); m != nil {
				if !strings.Contains(source, m[1]) {
					t.Errorf("%s: %s finds nothing, as no line of the log has it", rule[1], line)
				}
				continue
			}
			host, port, _ := strings.Cut(server.Addr, ":")
			line = strings.Replace(line, "redis-cli ", "redis-cli -e -h "+host+" -p "+port+" ", 1)
			if stdout, stderr, ok := shell(t, dir, "", strings.ReplaceAll(line, "\n", " ")); !ok || stdout+stderr == "" {
				t.Errorf("%s: %s: %q %q", rule[1], line, stdout, stderr)
			}
		}
	}
}

// sourceOf returns the source of all that is no test.
func sourceOf(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // of this module
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
