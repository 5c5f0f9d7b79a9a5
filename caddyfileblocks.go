// Tokens of options of a zone that have a block.

package slidingwindow

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
)

// unmarshalAlert reads the option, which has a block or none.
func unmarshalAlert(d *caddyfile.Dispenser) (*Alert, error) {
	if d.NextArg() {
		share := strings.TrimPrefix(strings.Join(append([]string{d.Val()}, d.RemainingArgs()...), " "), "denied ")
		return nil, d.Errf("alert has no arguments; write alert { denied %s }", cmp.Or(share, "10%"))
	}
	a, seen := new(Alert), make(suggest.Seen)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := seen.Once(d); err != nil {
			return nil, err
		}
		if err := a.unmarshal(d); err != nil {
			return nil, err
		}
		if _, err := a.rule(); err != nil {
			return nil, d.WrapErr(err)
		}
	}
	return a, nil
}

func (a *Alert) unmarshal(d *caddyfile.Dispenser) error {
	var value *string
	switch option := d.Val(); option {
	case "denied":
		value = &a.Denied
	case "over":
		value = (*string)(&a.Over)
	case "min":
		value = (*string)(&a.Min)
	default:
		return suggest.NoOption(d, " of alert", []string{"denied", "over", "min"})
	}
	if !d.AllArgs(value) {
		return suggest.ArgErr(d)
	}
	if *value == "" {
		return d.Err("the value is empty; write one, or take the line out")
	}
	return nil
}

// unmarshal reads the algorithm's name and block.
func (a *Algorithm) unmarshal(d *caddyfile.Dispenser) error {
	if words := suggest.PeekArgs(d); len(words) > 1 {
		if meant := known().Algorithm(words[0], words[1:]); strings.Contains(meant, "{") {
			return d.Errf("algorithm %s: options of an algorithm are in a block; write %s", strings.Join(words, " "), meant)
		}
	}
	if !d.AllArgs(&a.Name) {
		return suggest.ArgErr(d)
	}
	if _, _, err := a.compile(); err != nil {
		return d.WrapErr(err)
	}
	seen := make(suggest.Seen)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := seen.Once(d); err != nil {
			return err
		}
		read := func(d *caddyfile.Dispenser) error {
			if err := a.unmarshalOption(d, seen); err != nil {
				return err
			}
			_, _, err := a.compile()
			return wrap(d, err)
		}
		if err := refuseEmpty(d, read); err != nil {
			return err
		}
	}
	return nil
}

func (a *Algorithm) unmarshalOption(d *caddyfile.Dispenser, seen suggest.Seen) error {
	var words []*string
	option := d.Val()
	switch option {
	case "count":
		words = []*string{(*string)(&a.Count)}
	case "size":
		words = []*string{(*string)(&a.Size)}
	case "layers":
		a.Layers = new(Layers)
		words = []*string{(*string)(&a.Layers.Coarse), (*string)(&a.Layers.Fine)}
	case "adaptive":
		a.Adaptive = new(Adaptive)
		words = []*string{(*string)(&a.Adaptive.Min), (*string)(&a.Adaptive.Max)}
	case "burst":
		words = []*string{(*string)(&a.Burst)}
	case "native":
		words = []*string{&a.Native}
	case "keep":
		words = []*string{(*string)(&a.Keep)}
	case "max_value":
		words = []*string{(*string)(&a.MaxValue)}
	case "max_entry":
		words = []*string{(*string)(&a.MaxEntry)}
	case "fields":
		return a.unmarshalFields(d)
	case "strict", "weighted":
		if a.Name != "slices" {
			return d.WrapErr(errForeign(a.Name, option, "slices"))
		}
		if seen["strict"] && seen["weighted"] {
			return d.Err("strict and weighted cannot be combined; take out one")
		}
		a.Weighted = option == "weighted"
	default:
		return a.noOption(d)
	}
	if !d.AllArgs(words...) {
		return suggest.ArgErr(d)
	}
	return nil
}

// noOption refuses the option at the cursor of d, which no algorithm has.
func (a *Algorithm) noOption(d *caddyfile.Dispenser) error {
	var options []string
	for _, o := range algorithmOptions {
		if o.algorithm == a.Name {
			options = append(options, o.name)
		}
	}
	of := " of algorithm " + a.Name
	if len(options) == 0 {
		return d.Errf("unrecognized subdirective %q%s, which has none; take it out", d.Val(), of)
	}
	return suggest.NoOption(d, of, options)
}

// noOption refuses the option at the cursor, which a block does not have, and says what was probably meant.
func noOption(d *caddyfile.Dispenser, block string, options []string) error {
	if cure := foreign.Meaning(block, d.Val()); cure != "" {
		return d.Errf("unrecognized subdirective %q of %s; %s", d.Val(), block, cure)
	}
	return suggest.NoOption(d, " of "+block, options)
}

// unmarshalLoad reads how limits follow the load, on the line of the option or in a block.
func unmarshalLoad(d *caddyfile.Dispenser) (*Load, error) {
	l, seen := new(Load), make(suggest.Seen)
	if d.NextArg() {
		_ = seen.Once(d)
		if err := l.unmarshal(d); err != nil {
			return nil, err
		}
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := seen.Once(d); err != nil {
			return nil, err
		}
		if err := refuseEmpty(d, l.unmarshal); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *Load) unmarshal(d *caddyfile.Dispenser) error {
	switch option := d.Val(); option {
	case "cpu", "memory", "latency":
		r := new(LoadRange)
		if !d.AllArgs((*string)(&r.Lo), (*string)(&r.Hi)) {
			return d.Errf("%s takes two values: write %[1]s <lo> <hi>", option)
		}
		*map[string]**LoadRange{"cpu": &l.CPU, "memory": &l.Memory, "latency": &l.Latency}[option] = r
	case "floor", "ceiling", "recover":
		values := map[string]*Value{"floor": &l.Floor, "ceiling": &l.Ceiling, "recover": &l.Recover}
		if !d.AllArgs((*string)(values[option])) {
			return suggest.ArgErr(d)
		}
	default:
		return noOption(d, foreign.Load, []string{"cpu", "memory", "latency", "floor", "ceiling", "recover"})
	}
	return nil
}

// unmarshalBan reads how long the first ban lasts, and the block behind it.
func unmarshalBan(d *caddyfile.Dispenser) (*Ban, error) {
	b, seen := new(Ban), make(suggest.Seen)
	if !d.AllArgs((*string)(&b.For)) {
		return nil, suggest.ArgErr(d)
	}
	if _, err := b.compile(); err != nil {
		return nil, d.WrapErr(err)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := seen.Once(d); err != nil {
			return nil, err
		}
		read := func(d *caddyfile.Dispenser) error {
			if err := b.unmarshal(d); err != nil {
				return err
			}
			_, err := b.compile()
			return wrap(d, err)
		}
		if err := refuseEmpty(d, read); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *Ban) unmarshal(d *caddyfile.Dispenser) error {
	switch option := d.Val(); option {
	case "after":
		switch words := d.RemainingArgs(); {
		case len(words) == 1:
			b.After = Value(words[0])
		case len(words) == 3 && words[1] == "in":
			b.After, b.In = Value(words[0]), Value(words[2])
		default:
			return d.Err("after: write after <denials> in <duration>, such as after 3 in 1h")
		}
	case "factor", "max", "halve", "spread":
		if !d.AllArgs((*string)(map[string]*Value{"factor": &b.Factor, "max": &b.Max, "halve": &b.Halve, "spread": &b.Spread}[option])) {
			return d.Errf("%s takes one value: write %[1]s %s", option, map[string]string{"factor": "2", "max": "24h", "halve": "12h", "spread": "20%"}[option])
		}
	case "status":
		if err := parseInt(d, option, &b.Status); err != nil {
			return err
		}
		if b.Status == 0 {
			return d.Err("status 0: must be from 400 to 599")
		}
	case "silent":
		if d.NextArg() {
			return suggest.ArgErr(d)
		}
		b.Silent = true
	case "except":
		return readMatchers(d, &b.ExceptRaw)
	default:
		return suggest.NoOption(d, " of ban", []string{"after", "factor", "max", "halve", "spread", "status", "silent", "except"})
	}
	return nil
}

// unmarshalSettle reads where an answer tells its cost, on the line of the option or in a block.
func unmarshalSettle(d *caddyfile.Dispenser) (*Settle, error) {
	s, seen := new(Settle), make(suggest.Seen)
	if d.NextArg() {
		_ = seen.Once(d)
		if err := s.unmarshal(d); err != nil {
			return nil, err
		}
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if d.Val() != "weight" {
			if err := seen.Once(d); err != nil {
				return nil, err
			}
		}
		if err := refuseEmpty(d, s.unmarshal); err != nil {
			return nil, err
		}
	}
	return s, nil
}

var settleOptions = []string{
	"usage", "header", "json", "weight", "reserve_json", "reserve_body", "reserve_max", "on_missing", "on_abort", "refund_if", "max",
}

func (s *Settle) unmarshal(d *caddyfile.Dispenser) (err error) {
	switch option := d.Val(); option {
	case "usage":
		return parseWord(d, option, &s.Usage, "openai", "anthropic")
	case "header":
		words := d.RemainingArgs()
		if len(words) == 0 || len(words) > 2 {
			return suggest.ArgErr(d)
		}
		s.Header = words[0]
		if s.Strip = len(words) == 2; s.Strip && words[1] != "strip" {
			return d.Errf("unrecognized word %q of header; use strip", words[1])
		}
	case "json":
		if !d.AllArgs(&s.JSON) {
			return suggest.ArgErr(d)
		}
	case "weight":
		return s.unmarshalWeight(d)
	case "reserve_json":
		if s.ReserveJSON = d.RemainingArgs(); len(s.ReserveJSON) == 0 {
			return suggest.ArgErr(d)
		}
	case "refund_if":
		s.RefundIf, err = parseMatcher(d)
		return err
	case "reserve_body", "reserve_max", "on_missing", "on_abort", "max":
		values := map[string]*Value{"reserve_body": &s.ReserveBody, "reserve_max": &s.ReserveMax, "on_missing": &s.OnMissing, "on_abort": &s.OnAbort, "max": &s.Max}
		if !d.AllArgs((*string)(values[option])) {
			return suggest.ArgErr(d)
		}
	default:
		return noOption(d, foreign.Settle, settleOptions)
	}
	return nil
}

// unmarshalWeight reads pairs of a kind of tokens and its weight.
func (s *Settle) unmarshalWeight(d *caddyfile.Dispenser) error {
	if s.Weight == nil {
		s.Weight = new(Weight)
	}
	words := d.RemainingArgs()
	if len(words) == 0 || len(words)%2 != 0 {
		return d.Errf("weight: write weight input <units> cached <units> output <units>, or some of these")
	}
	for i := 0; i < len(words); i += 2 {
		var to **float64
		switch words[i] {
		case "input":
			to = &s.Weight.Input
		case "cached":
			to = &s.Weight.Cached
		case "output":
			to = &s.Weight.Output
		default:
			return d.Errf("weight %q is unknown; use one of input, cached, output", words[i])
		}
		if *to != nil {
			return d.Errf("weight %s is given twice; keep one", words[i])
		}
		value, err := strconv.ParseFloat(words[i+1], 64)
		if err != nil {
			return d.Errf("weight %s %q is not a number", words[i], words[i+1])
		}
		*to = &value
	}
	return nil
}

func (a *Algorithm) unmarshalFields(d *caddyfile.Dispenser) error {
	words := d.RemainingArgs()
	if len(words) == 0 {
		return suggest.ArgErr(d)
	}
	fields, err := readFields(words)
	if err != nil {
		return d.WrapErr(fmt.Errorf("algorithm %s: %w", a.Name, err))
	}
	a.Fields = fields
	return nil
}

// readFields reads names and values in turn.
func readFields(words []string) ([]Field, error) {
	if len(words)%2 != 0 {
		return nil, fmt.Errorf("fields %s: a value is missing; write fields <name> <value> ..., and values with spaces in quotes", strings.Join(words, " "))
	}
	fields := make([]Field, 0, len(words)/2)
	for i := 0; i < len(words); i += 2 {
		fields = append(fields, Field{Name: words[i], Value: words[i+1]})
	}
	return fields, nil
}

// parseMatcher reads a response matcher, on the line of the option or in a block.
func parseMatcher(d *caddyfile.Dispenser) (*caddyhttp.ResponseMatcher, error) {
	matchers, option := make(map[string]caddyhttp.ResponseMatcher), d.Val()
	if err := caddyhttp.ParseNamedResponseMatcher(d.NewFromNextSegment(), matchers); err != nil {
		return nil, fmt.Errorf("%s: write status <code>... or header <field> <value>: %w", option, err)
	}
	m := matchers[option]
	return &m, nil
}
