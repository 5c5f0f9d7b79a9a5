package slidingwindow

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Limit is a number of units that may be spent in any window of a length.
type Limit struct {
	// The number of units that may be spent in any window. 0 denies everything.
	// Placeholders are allowed.
	Max Value `json:"max"`

	// The length of the window, 1ms or more: `90s`, `5m`, `1h`, `1d`, `1w`. Placeholders
	// are allowed.
	Window Value `json:"window"`
}

func (l Limit) dynamic() bool { return l.Max.dynamic() || l.Window.dynamic() }

// policy returns the limit as the engine takes it.
func (l Limit) policy() (window.Policy, error) {
	limit, err := l.Max.int()
	if err != nil {
		return window.Policy{}, fmt.Errorf("max %w", err)
	}
	length, err := l.Window.duration()
	if err != nil {
		return window.Policy{}, fmt.Errorf("window %w", err)
	}
	p := window.Policy{Limit: limit, Window: length}
	return p, p.Check()
}

// check reports what is wrong with the limit, as far as it is known without a
// request. Field is its name in configuration.
func (l Limit) check(field string) error {
	if err := template.Check(string(l.Max)); err != nil {
		return fmt.Errorf("%s max %w", field, err)
	}
	if err := template.Check(string(l.Window)); err != nil {
		return fmt.Errorf("%s window %w", field, err)
	}
	if _, err := l.known().policy(); err != nil {
		if meant, fault, ok := (quantity.Limit{Max: string(l.Max), Window: string(l.Window)}).Meant(); ok {
			return fmt.Errorf("%s %s %s: %s; write %s %s %s", field, l.Max, l.Window, fault, field, meant.Max, meant.Window)
		}
		return fmt.Errorf("%s %s %s: %w", field, l.Max, l.Window, err)
	}
	return nil
}

// known returns the limit with something valid for placeholders.
func (l Limit) known() Limit {
	if l.Max.dynamic() {
		l.Max = "0"
	}
	if l.Window.dynamic() {
		l.Window = "1ms"
	}
	return l
}

// plain returns the limit with its values spelt in one way.
func (l Limit) plain() Limit { return Limit{l.Max.plainInt(), l.Window.plainDuration()} }

// limitTemplate is a limit of which a part is known only once a request comes. It
// is compiled at load.
type limitTemplate struct {
	max, window template.Text
	known       window.Policy // with something valid for placeholders
}

func newLimitTemplate(l Limit) limitTemplate {
	known, _ := l.known().policy() // no error: it was checked
	return limitTemplate{template.NewText(string(l.Max)), template.NewText(string(l.Window)), known}
}

// expand returns the limit for one request. It is an error if the placeholders
// do not give a valid one.
func (t *limitTemplate) expand(repl *caddy.Replacer) (window.Policy, error) {
	p := t.known
	var err error
	if t.max.Dynamic {
		if p.Limit, err = quantity.Int(t.max.Expand(repl)); err != nil {
			return p, err
		}
	}
	if t.window.Dynamic {
		if p.Window, err = quantity.Duration(t.window.Expand(repl)); err != nil {
			return p, err
		}
	}
	return p, p.Check()
}
