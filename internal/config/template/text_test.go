package template

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A value compiled at load is what Caddy makes of its text.
func TestValueAsCaddyExpandsIt(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{"X-Max": {"5"}, "X-Braces": {"{http.request.method}"}}
	repl := caddy.NewReplacer()
	caddyhttp.PrepareRequest(r, repl, httptest.NewRecorder(), &caddyhttp.Server{})
	repl.Set("number", 7)
	repl.Set("nothing", nil)
	for _, text := range []string{
		"{http.request.header.X-Max}", "{http.request.header.X-Max}0", "1{http.request.header.X-Max}", "{http.request.header.X-None}",
		"{http.request.header.X-Max}{http.request.header.X-Max}", "{http.request.header.X-Braces}", "{http.vars.client_ip}", "{client_ip}",
		"{number}", "{nothing}", "{unknown}", "{}", "{", "{number", "}{number}", `\{number}`, `{number\}`, `{number\}}`, "{a{number}", "{{number}}", " {number}", "{number}\n",
	} {
		v := NewText(text)
		if got, want := v.Expand(repl), repl.ReplaceAll(text, ""); got != want || !v.Dynamic {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
