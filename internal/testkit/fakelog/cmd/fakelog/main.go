// Command fakelog writes an access log of a site with many clients to standard output.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/fakelog"
)

func main() {
	var o fakelog.Options
	flag.IntVar(&o.Lines, "lines", 1_000_000, "how many lines")
	flag.IntVar(&o.Keys, "keys", 100_000, "how many addresses")
	flag.Uint64Var(&o.Seed, "seed", 1, "the same log for the same seed")
	flag.Float64Var(&o.Rate, "rate", 1000, "requests a second")
	flag.BoolVar(&o.Combined, "combined", false, "the combined format of nginx, in place of Caddy's JSON")
	flag.Parse()
	if err := fakelog.Write(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
