package promises

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/load"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/toptalkers"
)

// TestMetrics holds the metrics. TestMetricsAreWellNamed holds that a configuration registers these and no others.
func TestMetrics(t *testing.T) {
	described := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*?)\}`)
	var got []string
	for _, c := range slices.Concat(metrics.All, load.NewCollector(nil).Vectors(), toptalkers.Collector{}.Vectors()) {
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
	hold(t, "metrics", got)
}
