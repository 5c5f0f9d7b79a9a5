package e2e_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each metric and label in the dashboard and in the rules is one of the code, and each panel that
// docs/operating.md names is there.
func TestDashboardAndRules(t *testing.T) {
	metrics := parseSource(t).metrics()
	for _, file := range []string{"docs/grafana.json", "docs/alerts.yml"} {
		text := readFile(t, file)
		names := setOf(regexp.MustCompile(`caddy_sliding_window_\w+`).FindAllString(text, -1)...)
		if len(names) < 10 {
			t.Errorf("%s has only the metrics %v", file, names)
		}
		for name := range names {
			if _, ok := metrics[strings.TrimSuffix(name, "_bucket")]; !ok {
				t.Errorf("%s has the metric %s, which is not in the code", file, name)
			}
		}
		for _, m := range regexp.MustCompile(`(caddy_sliding_window_\w+)\{([^}]*)\}`).FindAllStringSubmatch(text, -1) {
			for _, label := range regexp.MustCompile(`(\w+)\s*=`).FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(metrics[strings.TrimSuffix(m[1], "_bucket")], label[1]) {
					t.Errorf("%s has %s with the label %s, which it has not", file, m[1], label[1])
				}
			}
		}
	}
	var board struct {
		UID    string
		Panels []struct{ Title, Type string }
	}
	if err := json.Unmarshal([]byte(readFile(t, "docs/grafana.json")), &board); err != nil || board.UID != "caddy-sliding-window" {
		t.Fatalf("docs/grafana.json has the uid %q: %v", board.UID, err)
	}
	titles := make(map[string]bool)
	for _, p := range board.Panels {
		titles[p.Title] = p.Type != "row"
	}
	rows := regexp.MustCompile(`(?m)^\| [^|]+\? \| ([^|]+) \|`).FindAllStringSubmatch(sectionOf(t, "docs/operating.md", "What to look at"), -1)
	if len(rows) != 5 {
		t.Errorf("docs/operating.md asks %d questions, want 5", len(rows))
	}
	for _, row := range rows {
		for title := range strings.SplitSeq(row[1], ", ") {
			if !titles[title] {
				t.Errorf("docs/operating.md names the panel %q, and docs/grafana.json has none of that title", title)
			}
		}
	}
}
