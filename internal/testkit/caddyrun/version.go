package caddyrun

import (
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"testing"
)

// IsBefore reports whether the Caddy that tests run with is older than a version. Tests of what only newer Caddys do
// ask it: go.mod has the oldest Caddy, and newest.mod the newest.
func IsBefore(tb testing.TB, major, minor, patch int) bool {
	tb.Helper()
	version, err := version()
	if err != nil {
		tb.Fatal(err)
	}
	return slices.Compare(version, []int{major, minor, patch}) < 0
}

var version = sync.OnceValues(func() ([]int, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/caddyserver/caddy/v2")
	cmd.Dir, cmd.Env = here(), Environment
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	version := make([]int, 3)
	_, err = fmt.Sscanf(string(out), "v%d.%d.%d", &version[0], &version[1], &version[2])
	return version, err
})
