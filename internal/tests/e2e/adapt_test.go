package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// Each case is a Caddyfile, a line of dashes, and the JSON or the error that it
// gives.
func TestAdapt(t *testing.T) {
	t.Setenv("SLIDING_WINDOW_TEST", "secret")
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".caddyfiletest")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			caddyfile, want, _ := strings.Cut(string(data), "\n----------\n")
			want = strings.TrimSpace(want)
			config, err := adapt(t, caddyfile+"\n")
			if !strings.HasPrefix(want, "{") {
				if err == nil {
					t.Fatalf("got no error, want %s", want)
				}
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got the error\n%s, want\n%s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, config, "", "\t"); err != nil {
				t.Fatal(err)
			}
			if got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
			// Its certificates are not there.
			if name == "redis_tls" {
				return
			}
			// No server listens where these configurations say.
			if err := validate(t, config); err != nil {
				t.Errorf("the JSON is refused: %v", err)
			}
		})
	}
}

// adapt turns a Caddyfile, which must be formatted, into JSON.
func adapt(t *testing.T, caddyfile string) ([]byte, error) {
	t.Helper()
	config, warnings, err := adaptAny(caddyfile)
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	return config, err
}

// adaptAny is adapt of a Caddyfile that need not be formatted.
func adaptAny(caddyfile string) ([]byte, []caddyconfig.Warning, error) {
	return caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
}

// validate loads a configuration as far as caddy validate does.
func validate(t *testing.T, config []byte) error {
	t.Helper()
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	return caddy.Validate(&c)
}
