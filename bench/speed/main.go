// Command speed measures this limiter and others side by side, in turn, on this
// machine: decisions per second, requests per second through Caddy, memory. It
// starts the servers that it needs, prints Markdown, and writes it with plots where
// it is told to.
//
//	go -C bench run ./speed -document ../docs/performance.md -plots ../docs
package main

import (
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
	overHTTP, deniedOverHTTP, hotOverHTTP,
	onRedis, onHotKey, latency, manyKeys, articles, redisBytes,
	inMemory, memoryBytes, allocations,
}

func main() {
	document := flag.String("document", "", "Markdown file in which tables replace what is between their markers; empty: none")
	plots := flag.String("plots", "", "folder to write SVG plots to; empty: none")
	only := flag.String("run", "", "measure only tables whose name matches this regular expression")
	quick := flag.Bool("quick", false, "shorter, with fewer rounds and keys; not for publication")
	flag.Parse()
	if err := run(*document, *plots, *only, *quick); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(document, plots, only string, quick bool) (err error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "speed")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{dir: dir, rounds: 5, length: 4 * time.Second, warmUp: time.Second, quick: quick}
	if quick {
		b.rounds, b.length, b.warmUp = 3, 400*time.Millisecond, 100*time.Millisecond
	}
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
			if err := t.draw(filepath.Join(plots, "speed-"+t.name+".svg"), result); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
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
