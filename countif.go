package slidingwindow

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// parseMatcher reads a response matcher, on the line of the option or in a block.
func parseMatcher(d *caddyfile.Dispenser) (*caddyhttp.ResponseMatcher, error) {
	matchers, option := make(map[string]caddyhttp.ResponseMatcher), d.Val()
	if err := caddyhttp.ParseNamedResponseMatcher(d.NewFromNextSegment(), matchers); err != nil {
		return nil, err
	}
	m := matchers[option]
	return &m, nil
}

// checkCountIf reports what is wrong with count_if, or with another option beside it.
func (z *Zone) checkCountIf() error {
	m := z.CountIf
	if m == nil {
		return nil
	}
	if err := checkMatcher("count_if", m); err != nil {
		return err
	}
	if n, err := z.Cost.int(); err == nil && n == 0 {
		return errors.New("count_if: cost 0 spends nothing that could be given back; take out cost or count_if")
	}
	return z.checkReceipts("count_if")
}

// checkMatcher reports what is wrong with the response matcher of an option.
func checkMatcher(option string, m *caddyhttp.ResponseMatcher) error {
	if len(m.StatusCode) == 0 && len(m.Headers) == 0 {
		return fmt.Errorf("%[1]s: no condition, so that every answer would count; write status <code>... or header <field> <value>, or take %[1]s out", option)
	}
	for _, code := range m.StatusCode {
		if code < 1 || code > 9 && code < 100 || code > 999 {
			return fmt.Errorf("%s: status %d: must be a status code, or one digit for a class of them", option, code)
		}
	}
	return nil
}
