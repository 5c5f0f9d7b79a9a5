package main

import (
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Fields are counted on a limit that is large enough to fill every slice.
const fieldsLimit = 6_000

// load is independent requests of one client at a rate.
type load struct {
	name string
	rate float64 // per traffic.Length
}

var loads = []load{{"a tenth of the limit", fieldsLimit / 10}, {"the limit", fieldsLimit}, {"ten times the limit", 10 * fieldsLimit}}

// fieldsRead returns how many fields of a hash a decision reads at a load, on
// average and at most. It reports whether the algorithm keeps a hash.
func fieldsRead(algorithm window.Algorithm, l load, seed uint64) (mean float64, most int, ok bool) {
	read := window.FactsOf(algorithm).FieldsRead
	if read == nil {
		return 0, 0, false
	}
	charge := &window.Charge{
		Zone: "z", Cost: 1, Algorithm: algorithm,
		Policies: []window.Policy{{Limit: fieldsLimit, Window: traffic.Length}},
	}
	var h window.History
	ds := make([]window.Decision, 1)
	sum, n := 0, 0
	from := traffic.Start
	for _, req := range traffic.Poisson(traffic.Seeded(seed), 0, l.rate, from, from+(4*traffic.Length).Milliseconds()) {
		if req.At >= from+traffic.Length.Milliseconds() { // the first window only fills
			fields := read(h, req.At, charge)
			sum, n, most = sum+fields, n+1, max(most, fields)
		}
		if h.Look(req.At, charge, ds) {
			h = h.Spend(req.At, charge, ds)
		} else {
			h = h.Explain(req.At, charge, ds, true)
		}
	}
	return float64(sum) / float64(n), most, true
}

func printFields(seed uint64) {
	fmt.Printf("\nFields of the hash that a decision reads, on average and at most, with limit %d in %s and requests at:\n", fieldsLimit, traffic.Length)
	header, line := "\n| algorithm |", "\n|---|"
	for _, l := range loads {
		header, line = header+" "+l.name+" |", line+"---|"
	}
	fmt.Println(header + line)
	for _, v := range variants {
		row, keeps := fmt.Sprintf("| `%s` |", v.name), false
		for _, l := range loads {
			mean, most, ok := fieldsRead(v.algorithm, l, seed)
			row += fmt.Sprintf(" %.0f; %d |", mean, most)
			keeps = keeps || ok
		}
		if keeps {
			fmt.Println(row)
		}
	}
}
