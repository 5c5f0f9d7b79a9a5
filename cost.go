package slidingwindow

import (
	"errors"
	"fmt"
	"math"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/template"
)

// tooCostly is a cost that no limit lets pass, and that is only compared.
const tooCostly = math.MaxInt64

// checkCost reports what is wrong with the cost by itself.
func (z *Zone) checkCost() error {
	if err := template.Check(string(z.Cost)); err != nil {
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

// expandCost returns the cost of one request, and whether it came out empty.
func (z *Zone) expandCost(repl *caddy.Replacer) (cost int64, empty bool) {
	n, err := quantity.Int(z.spends.Expand(repl))
	empty = z.spends.Empty(repl, err)
	switch {
	case errors.Is(err, quantity.ErrTooLarge):
		return tooCostly, empty
	case err != nil || n < 0:
		return z.cost, empty
	}
	return n, empty
}
