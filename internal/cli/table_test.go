package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// The command shows alerts, and no table without alerts.
func TestStatusShowsAlerts(t *testing.T) {
	var with, without strings.Builder
	printStatus(&with, &control.Status{Alerts: []control.Alert{{Zone: "logins", Store: "memory", Since: "2026-01-02T03:04:05Z", DeniedRatio: 0.1234, Denied: 1234, Requests: 10000}}})
	for _, want := range []string{"ALERT OF ZONE", "logins", "2026-01-02T03:04:05Z", "1234", "10000", "12.3%"} {
		if !strings.Contains(with.String(), want) {
			t.Errorf("got\n%s\nwant %s", with.String(), want)
		}
	}
	printStatus(&without, &control.Status{Alerts: []control.Alert{}})
	if strings.Contains(without.String(), "ALERT") {
		t.Errorf("got\n%s", without.String())
	}
}

// The command shows how limits follow the load.
func TestStatusShowsLoads(t *testing.T) {
	var text strings.Builder
	signals := map[string]float64{"cpu": 0.95, "memory": 0.1, "latency": 0.5}
	printStatus(&text, &control.Status{Loads: []control.ZoneLoad{{Zone: "api", Store: "memory", Factor: 0.3, Signals: signals}}})
	if want := " 30%          95%  10%     0.5s "; !strings.Contains(text.String(), want) {
		t.Errorf("got\n%s\nwant %s", text.String(), want)
	}
}

// The command shows which Caddys share a store, and when the store has heard of each.
func TestStatusShowsMembers(t *testing.T) {
	var text strings.Builder
	printStatus(&text, &control.Status{Stores: []control.StoreInfo{
		{Name: "memory", State: "ok"},
		{Name: "redis r:6379/0 sw:", State: "ok", Members: []control.Member{{Name: "web-1-x7Kd", Silent: 4.25}, {Name: "web-2-Qm1\x1b", Own: true, Silent: 0.5}}},
	}})
	for _, want := range []string{"CADDY", "web-1-x7Kd ", "4.25s ago", `"web-2-Qm1\x1b"`, "500ms ago, this one"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s\nwant %s", text.String(), want)
		}
	}
}

// The status says in short what holds, in words, too.
func TestOverrideState(t *testing.T) {
	age := 1.7
	for want, s := range map[string]control.OverrideState{
		"none":           {Version: "4-x"},
		"2, version 4-x": {Version: "4-x", Count: 2},
		"2 (1 not applied), version 4-x, confirmed 2 s ago":    {Version: "4-x", Count: 2, Misfits: 1, Age: &age},
		"0, version 4-x, confirmed 2 s ago, lost by the store": {Version: "4-x", Age: &age, Lost: true},
	} {
		if got := overrideState(&s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Sentences wrap between words at the width of a terminal. A word that is longer stays in one piece.
func TestSentencesWrap(t *testing.T) {
	for _, c := range []struct {
		width      int
		line, want string
	}{
		{20, "The next request of anna would pass.\nDecided by redis.\n\n", "The next request of\nanna would pass.\nDecided by redis.\n\n"},
		{20, "Redis key: sw:2-zset:{api}:anna-with-a-long-name\n", "Redis key:\nsw:2-zset:{api}:anna-with-a-long-name\n"},
		{0, "The next request of anna would pass.\n", "The next request of anna would pass.\n"},
	} {
		var got strings.Builder
		if n, err := fmt.Fprint(&output{&got, c.width}, c.line); n != len(c.line) || err != nil || got.String() != c.want {
			t.Errorf("got %q, want %q (%d, %v)", got.String(), c.want, n, err)
		}
	}
}

// What is noted of a reset begins as a sentence.
func TestResetSentences(t *testing.T) {
	var got strings.Builder
	printReset(&got, &control.Reset{Zone: "api", Key: "anna", Done: true, Note: "other Caddys follow within 1 s"})
	if want := "anna in zone api was reset.\nOther Caddys follow within 1 s.\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}
