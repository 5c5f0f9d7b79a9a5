package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// table is a set of variants that are measured in turn.
type table struct {
	name    string // of the markers and of the plot
	title   string // of the plot
	metrics []string
	ratios  []report.Ratio
	about   string // what was done to whom, for the note
	once    bool   // what does not vary is measured in one round
	counted bool   // a turn is a number of calls, and as long as they take
	lines   bool   // the plot: a line over the variants, which are sizes
	drawn   []int  // the plot: metrics to draw bars of, each in a column; nil: the first
	// prepare starts what the variants need; b.atEnd takes what stops it.
	prepare func(b *bench) ([]variant, error)
	// remark returns what the figures themselves add to the note; nil: nothing.
	remark func(b *bench, result *report.Table) string
}

// variant is one of the things that a table compares.
type variant struct {
	name string
	// measure returns a value for each metric of the table.
	measure func() ([]float64, error)
}

// bench is one run of the command.
type bench struct {
	dir    string
	rounds int           // of most tables
	length time.Duration // of one turn
	quick  bool
	busy   string // the load average before a table that names it

	cleanups []func()
}

func (b *bench) measure(t table) (*report.Table, error) {
	defer b.clean()
	variants, err := t.prepare(b)
	if err != nil {
		return nil, err
	}
	rounds := b.roundsOf(t)
	result := &report.Table{Metrics: t.metrics, Ratios: t.ratios, Rows: make([]report.Row, len(variants))}
	for i, v := range variants {
		result.Rows[i] = report.Row{Name: v.name, Samples: make([][]float64, len(t.metrics))}
	}
	for round := range rounds {
		for i, v := range variants {
			fmt.Fprintf(os.Stderr, "%s: round %d of %d: %s\n", t.name, round+1, rounds, v.name)
			runtime.GC() // no garbage of one falls to another
			values, err := v.measure()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			for m := range t.metrics {
				result.Rows[i].Samples[m] = append(result.Rows[i].Samples[m], values[m])
			}
		}
	}
	result.Note = b.note(t)
	if t.remark != nil {
		result.Note += " " + t.remark(b, result)
	}
	return result, nil
}

// roundsOf returns how often each variant of a table has its turn. Many short turns tell more
// than few long ones, since a machine is slow for seconds when others share it.
func (b *bench) roundsOf(t table) int {
	switch {
	case t.once:
		return 1
	case t.counted:
		return (b.rounds + 1) / 2
	}
	return b.rounds
}

func (b *bench) note(t table) string {
	about := t.about
	if b.quick {
		about += " Quick: a twentieth of the keys and calls, where they are many."
	}
	if t.once {
		return about
	}
	length := ""
	if !t.counted {
		length = fmt.Sprintf(" of %s", b.length)
	}
	return fmt.Sprintf("%s %d rounds%s; the median, and the extremes in brackets.", about, b.roundsOf(t), length)
}

func (b *bench) warmUp() time.Duration { return b.length / 4 }

// atEnd has a function called when the table is done, the last one first.
func (b *bench) atEnd(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *bench) clean() {
	for i := len(b.cleanups) - 1; i >= 0; i-- {
		b.cleanups[i]()
	}
	b.cleanups = nil
}

// scale returns n, or less of it in a quick run.
func (b *bench) scale(n int) int {
	if b.quick {
		return max(1, n/20)
	}
	return n
}

// newServer starts a Redis server for the table.
func (b *bench) newServer(args ...string) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "redis")
	if err != nil {
		return nil, err
	}
	process, err := redistest.Launch(dir, args...)
	if err != nil {
		return nil, err
	}
	b.atEnd(process.Kill)
	s := newServer(process)
	b.atEnd(s.close)
	return s, nil
}
