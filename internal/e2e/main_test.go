package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/caddyrun"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // documents, testdata and the code are read from there
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(caddyrun.Main(m, func() { _ = caddy.Stop() }))
}

// loadCaddy loads a Caddyfile into the Caddy of this process.
func loadCaddy(caddyfile string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}
