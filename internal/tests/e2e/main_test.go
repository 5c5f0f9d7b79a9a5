package e2e_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.uber.org/goleak"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil { // documents, testdata and the code are read from there
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Caddy before v2.11 leaves the certificate cache of a configuration that was only validated.
	os.Exit(caddyrun.Main(m, func() { _ = caddy.Stop() }, goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets")))
}

// addresses finds the addresses of sites and of the admin endpoint in a Caddyfile; served has those of the
// one that was loaded last.
var (
	addresses = regexp.MustCompile(`(?:https?://|admin )127\.0\.0\.1:\d+`)
	served    []string
)

// loadCaddy loads a Caddyfile into the Caddy of this process, and waits until the former one serves no more.
func loadCaddy(caddyfile string) error {
	before := served
	served = addresses.FindAllString(caddyfile, -1)
	if err := loadAtOnce(caddyfile); err != nil {
		return err
	}
	if slices.ContainsFunc(served, func(address string) bool { return slices.Contains(before, address) }) {
		caddyrun.AfterReload()
	}
	return nil
}

// loadAtOnce loads a Caddyfile: the servers of the former one may answer for a moment.
func loadAtOnce(caddyfile string) error {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}
