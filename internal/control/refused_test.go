package control_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// What is wrong with a body is refused with the field and what to send.
func TestRefusedBodies(t *testing.T) {
	const twice = "body: a field is given twice; send it once"
	for name, c := range map[string]struct {
		decode func([]byte) error
		bodies map[string]string
	}{
		"enforce": {func(b []byte) error { _, err := control.DecodeEnforce(b); return err }, map[string]string{
			`{"zone":"a","mode":"shadow","ttl":"1h","mode":"on"}`: twice,
			`{"all":true,"mode":"25%","ttl":"1h"}`:                "",
			`{"all":true,"mode":"config"}`:                        "",
		}},
		"filter": {func(b []byte) error { _, err := control.DecodeFilter(b); return err }, map[string]string{
			`{"zone":"a","zone":"b"}`: twice,
			`{"zone":"a"}`:            "",
		}},
		"set": {func(b []byte) error { _, err := overrides.Decode(b); return err }, map[string]string{
			`{"zone":"a","key":"k","deny":true,"KEY":"l"}`: twice,
		}},
		"replace": {func(b []byte) error { _, err := control.DecodeSet(b); return err }, map[string]string{
			`[]`:                                    "body: must be an object with records",
			`1`:                                     "body: must be an object with records",
			`{"overrides":[]}`:                      "body: unknown field; use records and store, and in a record zone, store, one of key, values, cidr, pattern and all, one of limits or concurrent, factor, deny and exempt, until or ttl, reason and by",
			`{"records":[{"zone":"a","zone":"b"}]}`: twice,
		}},
		"top": {func(b []byte) error { _, err := control.DecodeTop(b); return err }, map[string]string{
			`{"zone":"a","count":1,"count":2}`: twice,
		}},
	} {
		for body, want := range c.bodies {
			if err := c.decode([]byte(body)); err == nil && want != "" || err != nil && err.Error() != want {
				t.Errorf("%s %s: got %v, want %s", name, body, err, want)
			}
		}
	}
}
