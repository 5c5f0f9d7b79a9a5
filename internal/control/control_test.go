package control_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

func TestDecodeSelector(t *testing.T) {
	for body, want := range map[string]string{
		`{"zone":"z","key":"secret"}`:                      "",
		`{"zone":"z","key":""}`:                            "",
		`{"zone":"z","store":"memory","values":["a","b"]}`: "",
		`{"zone":"z"}`:                                     "",
		``:                                                 "body: not valid JSON",
		`secret`:                                           "body: not valid JSON",
		`{"zone":"z","key":"secret"`:                       "body: not valid JSON",
		`"secret"`:                                         "body: must be an object with zone, and key or values",
		`[]`:                                               "body: must be an object with zone, and key or values",
		`null`:                                             "zone: required; GET /sliding_window/zones lists the zones",
		`{"key":"secret"}`:                                 "zone: required; GET /sliding_window/zones lists the zones",
		`{"zone":"z","key":7773}`:                          "key: must be a string",
		`{"zone":["secret"]}`:                              "zone: must be a string",
		`{"zone":"z","values":"secret"}`:                   "values: must be a list of strings",
		`{"zone":"z","values":["a",7773]}`:                 "values: must be a list of strings",
		`{"zone":"z","secret":1}`:                          "body: unknown field; use zone, store, key and values, or request with method, uri, headers, remote and server",
		`{"request":{"uri":"http://h/","remote":"::1","headers":{"X-Key":"secret","A":["b","c"]}}}`: "",
		`{"request":{}}`:                             "", // HTTP refuses it
		`{"request":{"uri":7773}}`:                   "request.uri: must be a string",
		`{"request":{"remote":["secret"]}}`:          "request.remote: must be a string",
		`{"request":"secret"}`:                       "request: must be an object with uri and remote",
		`{"request":{"headers":"secret"}}`:           "request.headers: must be an object whose values are strings or lists of strings",
		`{"request":{"headers":{"secret":7773}}}`:    "request.headers: must be an object whose values are strings or lists of strings",
		`{"request":{"body":"secret"}}`:              "body: unknown field; use zone, store, key and values, or request with method, uri, headers, remote and server",
		`{"zone":"z","request":{"uri":"http://h/"}}`: "request: cannot be combined with zone, store, key or values",
		`{"key":"","request":{"uri":"http://h/"}}`:   "request: cannot be combined with zone, store, key or values",
		`{"zone":"z","key":"secret","values":["a"]}`: "values: cannot be combined with key; send one of them",
		`{"zone":"z"} {"zone":"secret"}`:             "body: more than one JSON value; send one object",
		"{\"zone\":\"z\",\"key\":\"\xff\"}":          "body: not valid UTF-8; a key with other bytes cannot be named",
	} {
		_, err := control.DecodeSelector([]byte(body))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", body, got, want)
		}
	}
}

// FuzzDecodeSelector wants that no body panics, that a selector which is read is whole, and that no
// error quotes the body.
func FuzzDecodeSelector(f *testing.F) {
	for _, body := range []string{
		`{"zone":"z","key":"192.0.2.1"}`, `{"zone":"z","values":["acme","anna"]}`, `{"zone":"z","store":"memory","key":""}`,
		`{"zone":1}`, `{"values":{}}`, `{"zone":"z","Key":"a","key":null}`, `[1,2]`, `nul`,
		`{"request":{"method":"POST","uri":"https://example.com:8443/a%20b?c=d#e","headers":{"X-Key":"k","Cookie":["a=b"]},"remote":"[::1]:80"}}`,
		`{"request":{"uri":"http://[::1]?x","remote":"@","server":"srv0"}}`, `{"request":{"headers":{"a b":"\n"}}}`, "{\"zone\":\"\xff\"}", `{"zone":"\ud800"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := control.DecodeSelector(body)
		if err == nil {
			if s.Request != nil {
				checkHTTP(t, s.Request)
				return
			}
			if s.Zone == "" || s.Key != nil && s.Values != nil || !utf8.ValidString(s.Zone) {
				t.Errorf("%q was read as %+v", body, s)
			}
			return
		}
		if text := err.Error(); len(text) > 120 || !known(text) {
			t.Errorf("%q: the error is %q", body, text)
		}
	})
}

// known reports whether an error is one that the package has words for.
func FuzzDecodeEnforce(f *testing.F) {
	for _, body := range []string{
		`{"zone":"z","mode":"shadow","ttl":"1h","reason":"why"}`, `{"all":true,"mode":"config"}`, `{"all":1}`, `{"mode":2}`, `{}`, `[]`, `nul`,
		`{"zone":"z","all":true,"mode":"on"}`, `{"zone":"z","mode":"config","ttl":"1h"}`, `{"key":"k"}`, "{\"zone\":\"\xff\"}",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := control.DecodeEnforce(body)
		if err != nil {
			if field, _, ok := strings.Cut(err.Error(), ":"); !ok || len(err.Error()) > 120 || !slices.Contains([]string{"body", "zone", "store", "all", "mode", "ttl", "reason", "by"}, field) {
				t.Errorf("%q: the error is %q", body, err)
			}
			return
		}
		if e.All == (e.Zone != "") || e.Mode == "" || (e.Mode == "config") != (e.TTL == "") || len(e.Reason) > 200 {
			t.Errorf("%q was read as %+v", body, e)
		}
	})
}

func known(text string) bool {
	for _, own := range []string{
		"body: not valid UTF-8; a key with other bytes cannot be named", "body: not valid JSON",
		"body: a field is given twice; send it once",
		"body: must be an object with zone, and key or values", "body: more than one JSON value; send one object",
		"body: unknown field; use zone, store, key and values, or request with method, uri, headers, remote and server", "zone: required; GET /sliding_window/zones lists the zones",
		"values: cannot be combined with key; send one of them", "values: must be a list of strings",
		"request: cannot be combined with zone, store, key or values", "request: must be an object with uri and remote",
		"request.headers: must be an object whose values are strings or lists of strings",
	} {
		if text == own {
			return true
		}
	}
	field, rest, _ := strings.Cut(text, ":")
	return rest == " must be a string" && slices.Contains([]string{"zone", "store", "key", "request.method", "request.uri", "request.remote", "request.server"}, field)
}
