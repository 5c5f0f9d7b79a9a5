package main

import (
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// answer is a result of a request that is sent and answered at times after the beginning.
func answer(p *pacer, request uint64, sent, answered time.Duration, status uint16) *vegeta.Result {
	return &vegeta.Result{Seq: request, Timestamp: p.began.Add(sent), Latency: answered - sent, Code: status}
}

// The time of a request runs from when it is due, not from when it is sent.
func TestFiguresOfRequestsSentLate(t *testing.T) {
	const ms = time.Millisecond
	p := &pacer{rate: 100, began: time.Unix(1_700_000_000, 0)}
	got, err := p.figures([]*vegeta.Result{
		answer(p, 0, 0, 35*ms, 200),        // due before the first time: no time of its own, but an answer
		answer(p, 3, 32*ms, 34*ms, 200),    // due at 30 ms
		answer(p, 4, 60*ms, 61*ms, 200),    // due at 40 ms, and sent late
		answer(p, 2, 20*ms, 129*ms, 200),   // due at 20 ms
		answer(p, 10, 100*ms, 131*ms, 200), // answered after the end
	}, 20*ms, 130*ms)
	if want := []float64{100 * 4.0 / 11, 21, 109, 109}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
}

func TestFiguresOfFailures(t *testing.T) {
	const ms = time.Millisecond
	p := &pacer{rate: 1_000, began: time.Unix(1_700_000_000, 0)}
	cut := answer(p, 1, ms, 2*ms, 200)
	cut.Error = "cut"
	got, err := p.figures([]*vegeta.Result{answer(p, 0, 0, ms, 200), cut, answer(p, 2, 2*ms, 3*ms, 503)}, 0, 3*ms)
	if err != nil || len(got) != 4 || math.Round(got[0]) != 33 || !math.IsInf(got[1], 1) {
		t.Errorf("got %v, error %v; want a third answered, and no median", got, err)
	}
	if _, err := p.figures([]*vegeta.Result{cut}, 0, ms); err == nil || !strings.Contains(err.Error(), "cut") {
		t.Errorf("error %v, want the failure", err)
	}
	if _, err := p.figures([]*vegeta.Result{answer(p, 0, 0, ms, http.StatusServiceUnavailable)}, 0, ms); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("error %v, want the status", err)
	}
	if _, err := p.figures(nil, 0, ms); err == nil {
		t.Error("no request is no error")
	}
}

// A pacer that is late does not wait, and keeps the schedule.
func TestPacer(t *testing.T) {
	p := &pacer{rate: 4_000}
	for sent, due := range map[uint64]time.Duration{0: 0, 1: 250 * time.Microsecond, 4_000: time.Second, 40_001: 10*time.Second + 250*time.Microsecond} {
		if got := p.due(sent); got != due {
			t.Errorf("request %d is due at %s, want %s", sent, got, due)
		}
		if wait, stop := p.Pace(due+time.Hour, sent); wait != 0 || stop {
			t.Errorf("request %d: wait %s, stop %v", sent, wait, stop)
		}
	}
}

// A rate that was not held is named in the note.
func TestRatesNotHeld(t *testing.T) {
	b := &bench{busy: "1.50"}
	result := &report.Table{Rows: []report.Row{
		{Name: "held", Samples: [][]float64{{100, 99, 42}}},
		{Name: "slow", Samples: [][]float64{{100, 98, 42}}},
		{Name: "unknown", Samples: [][]float64{nil}},
	}}
	got := atRates.remark(b, result)
	if !strings.Contains(got, "load average before: 1.50.") || !strings.HasSuffix(got, "a queue: slow; unknown.") {
		t.Errorf("got %q", got)
	}
	result.Rows = result.Rows[:1]
	if got := atRates.remark(b, result); !strings.HasSuffix(got, "All rates were held.") {
		t.Errorf("got %q", got)
	}
}

// The table is measured, written and drawn, with a real Caddy and a real Redis.
func TestRates(t *testing.T) {
	b := &bench{dir: t.TempDir(), rounds: 1, length: 100 * time.Millisecond}
	t.Chdir("..") // where the packages lie that are built
	result, err := b.measure(atRates)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(result.Rows), 4*len(perSecond); got != want {
		t.Fatalf("%d rows, want %d", got, want)
	}
	for _, row := range result.Rows {
		for i, samples := range row.Samples {
			if len(samples) != 1 || math.IsNaN(samples[0]) {
				t.Errorf("%s: %s: %v", row.Name, atRates.metrics[i], samples)
			}
		}
	}
	text, err := result.Markdown()
	if err != nil || !strings.Contains(text, "load average before") {
		t.Errorf("error %v, the table is\n%s", err, text)
	}
	t.Log("\n" + text)
	if err := atRates.draw(filepath.Join(b.dir, "rates.svg"), result); err != nil {
		t.Error(err)
	}
}
