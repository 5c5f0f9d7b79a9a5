package template_test

import (
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
)

// People read keys as they write them in Caddyfiles.
func TestShort(t *testing.T) {
	for text, want := range map[string]string{
		"{http.vars.client_ip}":                               "{client_ip}",
		"{http.request.host} {http.request.header.X-Api-Key}": "{host} {header.X-Api-Key}",
		"path {http.request.uri.path}":                        "path {path}",
		"{http.request.uri.path.0}":                           "{path.0}",
		"{http.request.uri.path.file.base}":                   "{file.base}",
		"{http.request.tls.client.subject}{http.vars.plan}":   "{tls_client_subject}{vars.plan}",
		"{http.request.header.A.B}":                           "{http.request.header.A.B}", // no shorthand has two dots
		"{http.auth.user.id}":                                 "{http.auth.user.id}",
		"{customer}":                                          "{customer}",
		"all":                                                 "all",
		"":                                                    "",
	} {
		if got := template.Short(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
