package slidingwindow

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// parseCountIf reads a response matcher, on the line of the option or in a block.
func parseCountIf(d *caddyfile.Dispenser) (*caddyhttp.ResponseMatcher, error) {
	matchers, option := make(map[string]caddyhttp.ResponseMatcher), d.Val()
	if err := caddyhttp.ParseNamedResponseMatcher(d.NewFromNextSegment(), matchers); err != nil {
		return nil, err
	}
	m := matchers[option]
	return &m, nil
}

// checkCountIf reports what is wrong with count_if, or with what stands beside it.
func (z *Zone) checkCountIf() error {
	m := z.CountIf
	if m == nil {
		return nil
	}
	if len(m.StatusCode) == 0 && len(m.Headers) == 0 {
		return errors.New("count_if: no condition, so that every answer would count; write status <code>... or header <field> <value>, or take count_if out")
	}
	for _, code := range m.StatusCode {
		if code < 1 || code > 9 && code < 100 || code > 999 {
			return fmt.Errorf("count_if: status %d: must be a status code, or one digit for a class of them", code)
		}
	}
	if n, err := z.Cost.int(); err == nil && n == 0 {
		return errors.New("count_if: cost 0 spends nothing that could be given back; take out cost or count_if")
	}
	algorithm, _, err := z.algorithms()
	if err != nil {
		return nil // of the algorithm
	}
	lease, err := z.Lease.engine(algorithm)
	if err != nil {
		return nil // of the lease
	}
	if err := window.CheckReceipts(algorithm, lease); err != nil {
		return fmt.Errorf("count_if: %w, or take out count_if", err)
	}
	return nil
}
