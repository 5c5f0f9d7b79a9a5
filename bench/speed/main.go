// Command speed measures this limiter and others side by side, in turn, on this
// machine: decisions per second, requests per second through Caddy, memory. It
// starts the servers that it needs, prints Markdown, and writes it with plots where
// it is told to.
//
//	go -C bench run ./speed -document RESULTS.md -plots ../docs
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// tables are all that can be measured, in the order of the document.
var tables = []table{
	overHTTP, hotOverHTTP, deniedOverHTTP, openOverHTTP, atRates,
	onRedis, onHotKey, shards, latency, manyKeys, manyPackedKeys, articles, redisBytes,
	inMemory, memoryBytes, allocations, onLogs,
}

func main() {
	b := new(bench)
	document := flag.String("document", "", "Markdown file in which tables replace what is between their markers; empty: none")
	plots := flag.String("plots", "", "folder to write SVG plots to; empty: none")
	only := flag.String("run", "", "measure only tables whose name matches this regular expression")
	flag.IntVar(&b.rounds, "rounds", 11, "how often each variant has its turn; half as often where a turn is a number of calls")
	flag.DurationVar(&b.length, "length", time.Second, "of one turn, after a quarter of it to warm up")
	flag.BoolVar(&b.quick, "quick", false, "3 short rounds, and fewer keys: a run of about a minute, which no document gets")
	redraw := flag.Bool("redraw", false, "measure nothing: draw the plots of the tables that -document has")
	flag.Parse()
	if *redraw {
		if err := drawAgain(*document, *plots, *only); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(b, *document, *plots, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(b *bench, document, plots, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if b.quick {
		if document != "" || plots != "" {
			return errors.New("-quick cannot be combined with -document and -plots; leave one out")
		}
		b.rounds, b.length = 3, 250*time.Millisecond
	}
	if b.rounds < 1 || b.length <= 0 {
		return errors.New("-rounds and -length have to be above 0")
	}
	if b.dir, err = os.MkdirTemp("", "speed"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	out := output{document: document}
	machine, err := describeMachine()
	if err != nil {
		return err
	}
	if err := out.write("machine", machine+"\n"); err != nil {
		return err
	}
	for _, t := range tables {
		if !pattern.MatchString(t.name) {
			continue
		}
		result, err := b.measure(t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		text, err := result.Markdown()
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if err := out.write(t.name, text); err != nil {
			return err
		}
		if plots != "" {
			if err := t.draw(t.picture(plots), result); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return nil
}

// picture returns the path of the plot of a table.
func (t table) picture(plots string) string { return filepath.Join(plots, "speed-"+t.name+".svg") }

// drawAgain draws plots of the tables that a document has, without measuring.
func drawAgain(document, plots, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if document == "" || plots == "" {
		return errors.New("-redraw needs -document and -plots")
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if !pattern.MatchString(t.name) {
			continue
		}
		result, err := report.Parse(string(text), t.name)
		if err != nil {
			return fmt.Errorf("%s: %w", document, err)
		}
		if err := t.draw(t.picture(plots), result); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

// output is where tables go: to the terminal, and into a document.
type output struct{ document string }

func (o output) write(name, text string) error {
	fmt.Printf("\n%s\n\n%s", name, text)
	if o.document == "" {
		return nil
	}
	old, err := os.ReadFile(o.document)
	if err != nil {
		return err
	}
	replaced, err := report.Replace(string(old), name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", o.document, err)
	}
	return os.WriteFile(o.document, []byte(replaced), 0o644) //nolint:gosec // for all to read
}
