package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/suggest"
)

// TestReports writes reports as pages, with names that would be code if they were not escaped.
func TestReports(t *testing.T) {
	const evil = "<script>alert(1)</script>\x1b[31m"
	at := time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)
	log := replay.Log{Files: []string{evil}, From: "2024-05-01T10:00:00Z", To: "2024-05-01T12:00:00Z", Requests: 30000, Broken: 2}
	report := &replay.Report{
		Log: log, Notes: []string{evil},
		Zones: []replay.Zone{{
			Zone: evil, Enforce: "shadow", Requests: 30000, Denied: 15000, Share: 0.5, Obeying: 20, Keys: 1200, Affected: 3, Estimated: true, Others: 1,
			Limits: []replay.Limit{{Limit: "10 in 1m", Denied: 15000}}, Top: []replay.Key{{Key: evil, Requests: 20000, Denied: 15000, Share: 0.75, First: "2024-05-01T10:00:00Z", Longest: 59.5}},
			Hours: []replay.Hour{{Start: "2024-05-01T10:00:00Z", Requests: 20000, Denied: 15000}, {Start: "2024-05-01T11:00:00Z", Requests: 10000}},
		}, {Zone: "idle"}},
		Against: &replay.Against{DeniedNow: 5, Newly: 5, NewlyKeys: 1, TopMore: []replay.Changed{{Zone: evil, Key: evil, Now: 5}}},
	}
	window := suggest.Window{Window: time.Minute, Text: "1m", Peaks: []suggest.Count{{Peak: 1, Keys: 1000, Requests: 9000}, {Peak: 7, Keys: 199, Requests: 9000}, {Peak: 900, Keys: 1, Requests: 12000}},
		ByKey: suggest.Percentiles{P50: 1, P90: 7, P99: 7, P999: 7, Max: 900}, Curve: []suggest.Point{{Limit: 1, Denied: suggest.Denied{Requests: 20000, Keys: 200}}, {Limit: 900}}, Limit: 12, Gap: &suggest.Gap{Below: 7, Above: 900, Keys: 1}}
	suggestion := &replay.Suggestion{
		Log: log, Key: evil, Zone: "sliding_window {\n}\n<script>", Notes: []string{evil},
		Result: suggest.Result{Keys: 1200, Requests: 30000, Windows: []suggest.Window{window}, Pair: []suggest.Limit{{Limit: 12, Window: time.Minute, Text: "1m"}},
			Denied: suggest.Denied{Requests: 11000, Keys: 1}, Top: []suggest.Top{{Key: evil, Requests: 12000, Denied: 11000, Peaks: []int{900}}}, Spans: []suggest.Span{{Start: at, Requests: 30000, Denied: 11000}}, Step: 60},
	}
	dir := t.TempDir()
	for name, c := range map[string]struct {
		write func(string) error
		want  []string
	}{
		"replay":     {func(file string) error { return writePage(file, replayDocument(report)) }, []string{"50%", "15,000 of 30,000 requests", "of about 1,200 keys", "10 in 1m", "Newly denied", "Zone idle", "could not be read", "59.5s"}},
		"suggestion": {func(file string) error { return writePage(file, suggestionDocument(suggestion)) }, []string{"Suggested: 12 in 1m", "36.7%", "1 key with peaks far", "limit 12", "Distribution of peaks", "Denied by a limit", "Denied over time", "Most affected", "900 and more"}},
		"empty":      {func(file string) error { return writePage(file, suggestionDocument(&replay.Suggestion{})) }, []string{"Which limits?"}},
	} {
		file := filepath.Join(dir, name)
		if err := c.write(file); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		for _, bad := range []string{"<script", "\x1b", "NaN", "Inf"} {
			if strings.Contains(string(page), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info.Mode(), err)
		}
	}
	if err := writePage(dir, replayDocument(report)); err == nil || !strings.Contains(err.Error(), "--html") {
		t.Error(err)
	}
}

// TestPeakBars sees that each peak is in its bar, and that bars leave no hole.
func TestPeakBars(t *testing.T) {
	all := peakBars([]suggest.Count{{Peak: 1, Keys: 5}, {Peak: 2, Keys: 3}, {Peak: 100, Keys: 2}, {Peak: 101, Keys: 1}})
	keys := 0.0
	for i, b := range all {
		if keys += b.Y; b.X1 <= b.X0 || i > 0 && b.X0 != all[i-1].X1 {
			t.Errorf("%+v", b)
		}
	}
	if last := all[len(all)-1]; keys != 11 || all[0].Y != 5 || last.X0 > 100 || last.X1 <= 101 || last.Y != 3 {
		t.Errorf("%+v", all)
	}
}
