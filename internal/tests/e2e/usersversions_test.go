package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

// brought are the modules of which a program with the plugin has packages, and one with Caddy alone has not.
var brought = []string{
	"github.com/redis/go-redis/v9", "go.uber.org/atomic",
	"github.com/tidwall/gjson", "github.com/tidwall/match", "github.com/tidwall/pretty",
	"github.com/shirou/gopsutil/v4", "github.com/tklauser/go-sysconf", "github.com/tklauser/numcpus",
}

// TestUsersVersions lists the modules of a program that imports Caddy, with the plugin and without it, for the oldest Caddy and
// the newest. The plugin raises no version, and its packages come from no other modules than those that
// docs/compatibility.md names.
func TestUsersVersions(t *testing.T) {
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"go.mod", "newest.mod"} {
		version := regexp.MustCompile(`\tgithub.com/caddyserver/caddy/v2 (v\S+)`).FindStringSubmatch(readFile(t, from))[1]
		t.Run(version, func(t *testing.T) {
			caddy := "require github.com/caddyserver/caddy/v2 " + version + "\n"
			plugin := "require github.com/slidingwindow/caddy-sliding-window v0.0.0\nreplace github.com/slidingwindow/caddy-sliding-window => " + root + "\n"
			without, packagesWithout := modulesOf(t, caddy)
			with, packagesWith := modulesOf(t, caddy+plugin, "github.com/slidingwindow/caddy-sliding-window", "github.com/slidingwindow/caddy-sliding-window/stores")
			for module, version := range without {
				if with[module] != version {
					t.Errorf("%s %s: the plugin makes it %q", module, version, with[module])
				}
			}
			delete(packagesWith, "github.com/slidingwindow/caddy-sliding-window")
			for module := range packagesWith {
				if packagesWithout[module] == "" && !slices.Contains(brought, module) {
					t.Errorf("the plugin brings packages of %s", module)
				}
			}
			for _, module := range brought {
				if packagesWith[module] == "" {
					t.Errorf("the plugin brings no packages of %s", module)
				}
			}
		})
	}
	compatibility := readFile(t, "docs/compatibility.md")
	for _, module := range brought {
		if name := strings.TrimSuffix(strings.TrimSuffix(module, "/v9"), "/v4"); !strings.Contains(compatibility, filepath.Base(name)) {
			t.Errorf("docs/compatibility.md does not name %s", module)
		}
	}
}

// modulesOf returns the versions of all modules that a program with these requirements selects, and of those that it has packages of.
func modulesOf(t *testing.T, requirements string, imports ...string) (all, withPackages map[string]string) {
	t.Helper()
	dir := t.TempDir()
	source := "package main\n\nimport (\n\tcaddycmd \"github.com/caddyserver/caddy/v2/cmd\"\n\t_ \"github.com/caddyserver/caddy/v2/modules/standard\"\n"
	for _, path := range imports {
		source += fmt.Sprintf("\t_ %q\n", path)
	}
	for name, text := range map[string]string{
		"go.mod":  "module example.com/user\n\ngo 1.25\n\n" + requirements,
		"main.go": source + ")\n\nfunc main() { caddycmd.Main() }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func(args ...string) map[string]string {
		t.Helper()
		cmd := exec.Command("go", append([]string{"list", "-mod=mod"}, args...)...) //nolint:gosec // of a test
		cmd.Dir, cmd.Env = dir, append(slices.Clone(caddyrun.Environment), "GOFLAGS=")
		var problems bytes.Buffer
		cmd.Stderr = &problems
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %q: %v\n%s", cmd.Args[1:], err, problems.Bytes())
		}
		versions := make(map[string]string)
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			if module, version, ok := strings.Cut(lines.Text(), " "); ok && version != "" {
				versions[module] = version
			}
		}
		if len(versions) < 50 {
			t.Fatalf("go %q lists %d modules", cmd.Args[1:], len(versions))
		}
		return versions
	}
	const format = "{{.Path}} {{.Version}}"
	withPackages = list("-deps", "-f", "{{with .Module}}"+format+"{{end}}", ".")
	return list("-m", "-f", format, "all"), withPackages
}
