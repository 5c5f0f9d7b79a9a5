package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/quantity"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

// place returns file and line of the cursor.
func place(d *caddyfile.Dispenser) string { return fmt.Sprintf("%s:%d", d.File(), d.Line()) }

// inShort is an error of a Caddyfile, which names placeholders as they are written there.
func inShort(err error) error {
	if err == nil {
		return nil
	}
	return shortError{err}
}

type shortError struct{ error }

func (e shortError) Error() string { return template.ShortIn(e.error.Error()) }

func (e shortError) Unwrap() error { return e.error }

// checkWrittenKey refuses an empty key, too, as of a variable of the environment that is
// not set; in JSON that is a key that is left out.
func checkWrittenKey(text string) error {
	if text == "" {
		return errors.New(`key "" is empty; write what has a quota of its own, such as {client_ip}`)
	}
	return template.CheckKey(text)
}

func parseWord[T ~string](d *caddyfile.Dispenser, option string, target *T, words ...T) error {
	var word string
	if !d.AllArgs(&word) {
		return suggest.ArgErr(d)
	}
	*target = T(word)
	return wrap(d, checkWord(option, *target, words...))
}

func parseInt(d *caddyfile.Dispenser, option string, target *int) error {
	var value string
	if !d.AllArgs(&value) {
		return suggest.ArgErr(d)
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		if _, err := quantity.Int(value); err != nil {
			return d.Errf("%s %w", option, err)
		}
		return d.Errf("%s %q is not a whole number", option, value)
	}
	*target = n
	return nil
}

// refuseEmpty reads an option, and refuses an empty word after it that read takes for the default, as of a
// variable of the environment that is not set. Matchers may hold one.
func refuseEmpty(d *caddyfile.Dispenser, read func(*caddyfile.Dispenser) error) error {
	var empty error
	if option := d.Val(); option != "match" && option != "except" && option != "count_if" && option != "refund_if" && slices.Contains(suggest.PeekArgs(d), "") {
		empty = d.Errf("%s \"\": the value is empty; write one, or take the line out", option)
	}
	return cmp.Or(read(d), empty)
}

// wrap adds file and line to an error.
func wrap(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}
