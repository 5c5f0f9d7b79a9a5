package slidingwindow

import (
	"errors"
	"fmt"
	"math"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// mostOfZset is how many units a request may spend with zset at most. Redis takes
// about 1 µs to write each, and serves nobody else meanwhile.
const mostOfZset = 10_000

// tooCostly is a cost that no limit lets pass, and that is only compared.
const tooCostly = math.MaxInt64

// checkCost reports what is wrong with the cost by itself.
func (z *Zone) checkCost() error {
	if err := checkPlaceholders(string(z.Cost)); err != nil {
		return fmt.Errorf("cost %w", err)
	}
	if z.Cost == "" || z.Cost.dynamic() {
		return nil
	}
	n, err := z.Cost.int()
	if err == nil && n < 0 {
		err = fmt.Errorf("%d is negative; use 0 to look without spending", n)
	}
	if err != nil {
		return fmt.Errorf("cost %w", err)
	}
	return nil
}

// checkUnits reports units that are too many at once for the algorithm.
func (z *Zone) checkUnits(algorithm window.Algorithm) error {
	if algorithm != (window.Zset{}) {
		return nil
	}
	cost, _ := z.Cost.int() // 0 if it is not known
	if cost > mostOfZset {
		return fmt.Errorf("cost %d: zset keeps each unit, %d is the most; use log", cost, mostOfZset)
	}
	if lease, _ := z.Lease.engine(algorithm); lease.Units > mostOfZset {
		return fmt.Errorf("lease %d: zset keeps each unit, %d is the most; use log", lease.Units, mostOfZset)
	}
	return nil
}

// expandCost returns the cost of one request.
func (z *Zone) expandCost(repl *caddy.Replacer) int64 {
	n, err := z.spends.expand(repl).int()
	switch {
	case errors.Is(err, errTooLarge):
		return tooCostly
	case err != nil || n < 0:
		return z.cost
	case n > mostOfZset && z.algorithm == (window.Zset{}):
		return tooCostly
	}
	return n
}
