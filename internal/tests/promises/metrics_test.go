package promises

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
)

// TestMetrics holds the metrics. TestMetricsAreWellNamed holds that a configuration registers these and no others.
func TestMetrics(t *testing.T) {
	described := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*?)\}`)
	var got []string
	for _, c := range slices.Concat(metrics.All, load.NewCollector(nil).Vectors(), toptalkers.Collector{}.Vectors(), banbook.Collector{}.Vectors()) {
		descriptions := make(chan *prometheus.Desc, 1)
		c.Describe(descriptions)
		m := described.FindStringSubmatch((<-descriptions).String())
		kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", c), "*prometheus."), "Vec"))
		got = append(got, fmt.Sprintf("%s{%s} %s", m[1], m[2], kind))
	}
	decisions, shadow := metrics.NewDecisionCounters("promised"), metrics.NewShadowCounters("promised")
	for _, outcomes := range []map[string]int64{decisions.Outcomes(), shadow.Outcomes()} {
		for outcome := range outcomes {
			got = append(got, fmt.Sprintf("caddy_sliding_window_decisions_total{outcome=%q}", outcome))
		}
	}
	hold(t, "metrics", append(got, labelValues(t)...))
}

// labelValues returns the values of labels that the code writes out, such as reasons: alerts select them.
func labelValues(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("internal/observe/metrics/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) = prometheus\.New.*\n.*Name: "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		names[m[1]] = "caddy_sliding_window_" + m[2]
	}
	written := regexp.MustCompile(`metrics\.(\w+)\.WithLabelValues\([^()\n]*"(\w+)"\)`)
	err = filepath.WalkDir("internal", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, m := range written.FindAllStringSubmatch(string(code), -1) {
			lines = append(lines, names[m[1]]+"{..., "+strconv.Quote(m[2])+"}")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) < 15 {
		t.Errorf("only the values %q", lines)
	}
	return lines
}
