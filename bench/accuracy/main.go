// Command accuracy measures what each algorithm is worth: how often it is wrong,
// judged by an exact oracle on five shapes of traffic, what it costs in memory and
// what a decision costs as the history grows. It prints Markdown and writes plots.
//
//	go -C bench run ./accuracy -plots ../docs
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// variant is an algorithm with options, under the words of a Caddyfile.
type variant struct {
	name      string
	algorithm window.Algorithm
}

var variants = []variant{
	{"zset", window.Zset{}},
	{"log", window.Log{}},
	{"stream", window.Stream{}},
	{"slices { count 60 }", window.Slices{}},
	{"slices { count 60 weighted }", window.Slices{Weighted: true}},
	{"slices { count 1 weighted }", window.Slices{Count: 1, Weighted: true}},
	{"slices { layers 10s 1s }", window.Layers{Coarse: 10 * time.Second, Fine: time.Second}},
	{"slices { size 100ms }", window.Slices{Size: 100 * time.Millisecond}},
	{"slices { adaptive 100ms 2s }", window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second}},
	{"gcra", window.GCRA{}},
}

func main() {
	plots := flag.String("plots", "", "folder to write SVG plots to; empty: none")
	seed := flag.Uint64("seed", 1, "of the traffic")
	redraw := flag.String("redraw", "", "Markdown file whose tables of costs to draw, without measuring costs again; empty: measure")
	flag.Parse()
	if err := run(*plots, *redraw, *seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(plots, redraw string, seed uint64) error {
	results := make(map[string]map[string]traffic.Accuracy)
	for _, s := range traffic.Shapes {
		arrivals := s.Make(traffic.Seeded(seed))
		results[s.Name] = make(map[string]traffic.Accuracy)
		for _, v := range variants {
			results[s.Name][v.name] = traffic.Judge(v.algorithm, arrivals)
		}
	}
	printAccuracy(results)
	if redraw != "" {
		text, err := os.ReadFile(redraw)
		if err != nil {
			return err
		}
		all, err := costsIn(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", redraw, err)
		}
		return plotAll(plots, results, all)
	}
	printFields(seed)

	all := make(map[string]*costs)
	for _, v := range variants {
		all[v.name] = new(costs)
		all[v.name].measureMemory(v.algorithm)
	}
	dir, err := os.MkdirTemp("", "accuracy")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := launch(dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	for _, v := range variants {
		if err := all[v.name].measureRedis(v.algorithm, server); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	printCosts(all)
	if plots == "" {
		return nil
	}
	return plotAll(plots, results, all)
}

func printAccuracy(results map[string]map[string]traffic.Accuracy) {
	fmt.Printf("Limit %d in %s, over %s. Shapes:\n\n", traffic.Limit, traffic.Length, traffic.Duration)
	for _, s := range traffic.Shapes {
		fmt.Printf("- **%s**: %s\n", s.Name, s.About)
	}
	fmt.Println("\nWrongly allowed / wrongly denied, in % of requests; worst overshoot of a trailing window, in % of the limit:")
	fmt.Print("\n| algorithm |")
	for _, s := range traffic.Shapes {
		fmt.Printf(" %s |", s.Name)
	}
	fmt.Print("\n|---|" + strings.Repeat("---|", len(traffic.Shapes)) + "\n")
	for _, v := range variants {
		fmt.Printf("| `%s` |", v.name)
		for _, s := range traffic.Shapes {
			a := results[s.Name][v.name]
			fmt.Printf(" %.2f / %.2f; %.0f |", a.WronglyAllowedShare(), a.WronglyDeniedShare(), a.Overshoot())
		}
		fmt.Println()
	}
}

func printCosts(all map[string]*costs) {
	fmt.Printf("\nBytes per key with n units in the window (Redis: `MEMORY USAGE`; memory: heap), %s/%s, %d CPUs:\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	header := "\n| algorithm |"
	for _, n := range sizes {
		header += fmt.Sprintf(" n = %d |", n)
	}
	header += "\n|---|" + strings.Repeat("---|", len(sizes))
	fmt.Println(header)
	for _, v := range variants {
		fmt.Printf("| `%s` |", v.name)
		for i := range sizes {
			fmt.Printf(" %d; %d |", all[v.name].redisBytes[i], all[v.name].memoryBytes[i])
		}
		fmt.Println()
	}
	fmt.Println("\nThe server's time for one decision, in µs (`INFO commandstats`), and what memory decides in a second:")
	fmt.Println(strings.Replace(header, "\n|---|", " memory, 1/s |\n|---|---|", 1))
	for _, v := range variants {
		fmt.Printf("| `%s` |", v.name)
		for i := range sizes {
			fmt.Printf(" %.1f |", all[v.name].redisMicros[i])
		}
		fmt.Printf(" %.0f |\n", 1e9/all[v.name].memoryNanos)
	}
}
