package caddyapi

import (
	"os"
	"path/filepath"
	"testing"

	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// The configuration is loaded whatever this Caddy returns, and the adapter is that of the file.
func TestLoadConfig(t *testing.T) {
	for name, want := range map[string]string{"Caddyfile": "caddyfile", "site.caddyfile": "caddyfile", "Caddyfile.old": "caddyfile", "caddyfile.json": "", "site.json": ""} {
		path := filepath.Join(t.TempDir(), name)
		text := "{}"
		if want != "" {
			text = ":80\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, used, adapter, err := LoadConfig(path, "")
		if err != nil || len(config) == 0 || used != path || adapter != want {
			t.Errorf("%s: got %q from %q by %q, %v, want one by %q", name, config, used, adapter, err, want)
		}
		if got := adapterOf(path, ""); got != want {
			t.Errorf("%s: the adapter is taken to be %q, want %q", name, got, want)
		}
	}
	if got := adapterOf("Caddyfile", "other"); got != "other" {
		t.Errorf("got the adapter %q, want the one of --adapter", got)
	}
	if _, _, _, err := LoadConfig(filepath.Join(t.TempDir(), "absent"), ""); err == nil {
		t.Error("a file that is absent was loaded")
	}
}
