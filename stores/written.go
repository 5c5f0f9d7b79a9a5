package stores

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// optionError is an error in the value of an option, found after the Caddyfile was read.
type optionError struct {
	option string // a key of Redis.WrittenAt
	error
}

func (e optionError) Unwrap() error { return e.error }

// ofOption names the option of an error.
func ofOption(option string, err error) error {
	if err == nil {
		return nil
	}
	return optionError{option, err}
}

// note remembers the place of the option at the cursor.
func (r *Redis) note(d *caddyfile.Dispenser, option string) {
	if r.WrittenAt == nil {
		r.WrittenAt = make(map[string]string)
	}
	r.WrittenAt[option] = strings.TrimPrefix(d.Err("").Error(), ", at ")
}

// notePlaceholders remembers the place of the option at the cursor if a value of it is
// known only later.
func (r *Redis) notePlaceholders(d *caddyfile.Dispenser, option string, values ...string) {
	for _, value := range values {
		if hasPlaceholder(value) {
			r.note(d, option)
			return
		}
	}
}

// located adds file and line of the option to an error, if they are known.
func (r *Redis) located(err error) error {
	var o optionError
	if errors.As(err, &o) {
		if at := r.WrittenAt[o.option]; at != "" {
			return fmt.Errorf("%w, at %s", err, at)
		}
	}
	return err
}
