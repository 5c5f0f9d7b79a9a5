package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// words are what errors say of a kind of body.
type words struct {
	encoding string            // what else is wrong with a body that is not UTF-8
	object   string            // the fields that it needs
	fields   string            // all that it may have
	types    map[string]string // of the fields that are not strings
}

// decode reads a body of one JSON object into v. Its errors name the field, and never quote the
// body: that holds keys of clients, and Caddy logs errors.
func decode(body []byte, v any, w words) error {
	if !utf8.Valid(body) {
		return errors.New("body: not valid UTF-8" + w.encoding)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return w.plainError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("body: more than one JSON value; send one object")
	}
	return overrides.CheckNames(body)
}

// plainError returns an error of decoding without the input that it quotes.
func (w words) plainError(err error) error {
	wrong := new(json.UnmarshalTypeError)
	switch {
	case errors.Is(err, errFields):
		return errFields
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("body: must be an object with %s", w.object)
	case errors.As(err, &wrong):
		field := wrong.Field
		if kind, ok := w.types[field]; ok {
			return fmt.Errorf("%s: must be %s", field, kind)
		}
		return fmt.Errorf("%s: must be a string", field)
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return fmt.Errorf("body: unknown field; use %s", w.fields)
	}
	return errors.New("body: not valid JSON")
}
