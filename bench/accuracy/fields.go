package main

import (
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// fieldsRead returns how many fields of a hash a decision on the arrivals of key
// 0 reads, on average and at most. It reports whether the algorithm keeps a hash.
func fieldsRead(algorithm window.Algorithm, arrivals []arrival) (mean float64, most int, ok bool) {
	state := algorithm.NewState()
	reader, ok := state.(window.FieldsReader)
	if !ok {
		return 0, 0, false
	}
	charge := &window.Charge{Zone: "z", Policies: policy, Cost: 1, Algorithm: algorithm}
	ds := make([]window.Decision, 1)
	sum, n := 0, 0
	for _, req := range arrivals {
		if req.key != 0 {
			continue
		}
		fields := reader.FieldsRead(req.at, charge)
		sum, n, most = sum+fields, n+1, max(most, fields)
		if state.Look(req.at, charge, ds) {
			state.Spend(req.at, charge, ds)
		} else {
			state.Explain(req.at, charge, ds, true)
		}
	}
	return float64(sum) / float64(max(1, n)), most, true
}

func printFields(seed uint64) {
	fmt.Println("\nFields of the hash that a decision reads, on average and at most:")
	fmt.Println("\n| algorithm | a tenth of the limit | poisson | flood |\n|---|---|---|---|")
	quiet := poisson(seeded(seed), 0, limit/10, start, start+duration.Milliseconds())
	for _, v := range variants {
		row := fmt.Sprintf("| `%s` |", v.name)
		keeps := false
		for _, arrivals := range [][]arrival{quiet, shapes[0].make(seeded(seed)), shapes[len(shapes)-1].make(seeded(seed))} {
			mean, most, ok := fieldsRead(v.algorithm, arrivals)
			row += fmt.Sprintf(" %.1f; %d |", mean, most)
			keeps = keeps || ok
		}
		if keeps {
			fmt.Println(row)
		}
	}
}
