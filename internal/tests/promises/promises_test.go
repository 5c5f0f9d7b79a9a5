package promises

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"go.uber.org/goleak"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

var add = flag.Bool("add", false, "append what is new to the lists in testdata")

func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil { // the code and the documents are read from there
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Caddy before v2.11 leaves the certificate cache of a configuration that was only validated.
	os.Exit(caddyrun.Main(m, func() { _ = caddy.Stop() }, goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets")))
}

const lists = "internal/tests/promises/testdata/"

// hold compares what there is with a list in testdata. The comments at the top of the list are the promise.
func hold(t *testing.T, list string, got []string) {
	t.Helper()
	path := lists + list + ".txt"
	promise, promised := read(t, path)
	gone := slices.DeleteFunc(slices.Clone(promised), func(line string) bool { return slices.Contains(got, line) })
	fresh := slices.DeleteFunc(slices.Clone(got), func(line string) bool { return slices.Contains(promised, line) })
	if len(gone) > 0 {
		t.Errorf("BROKEN PROMISE: %s\n\tgone or changed:\n\t\t%s\n\tbring it back; to break the promise, follow \"What is stable\" in docs/compatibility.md, and then take it out of %s",
			promise, strings.Join(gone, "\n\t\t"), path)
	}
	if len(fresh) > 0 && !*add {
		t.Logf("new, and in no promise yet:\n\t\t%s\n\tto promise it, run go test ./internal/tests/promises -add before the next release, which appends it to %s", strings.Join(fresh, "\n\t\t"), path)
	}
	promised = append(promised, fresh...)
	if *add {
		write(t, path, promise, promised)
	}
}

// read returns the comments at the top of a list as one line, and its other lines.
func read(t *testing.T, path string) (promise string, lines []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var comments []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			comments = append(comments, comment)
		} else if line != "" {
			lines = append(lines, line)
		}
	}
	if len(comments) == 0 {
		t.Fatalf("%s does not begin with the promise, in lines with a #", path)
	}
	return strings.Join(comments, " "), lines
}

func write(t *testing.T, path, promise string, lines []string) {
	t.Helper()
	slices.Sort(lines)
	if err := os.WriteFile(path, []byte("# "+promise+"\n\n"+strings.Join(slices.Compact(lines), "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each list is in the table of docs/compatibility.md, which has no other, and the tests that CHANGELOG.md names are there.
func TestPromisesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(lists + "*.txt")
	if err != nil || len(files) < 8 {
		t.Fatalf("only %q in %s, %v", files, lists, err)
	}
	for _, file := range files {
		if !strings.Contains(string(text), "(../"+file+")") {
			t.Errorf("docs/compatibility.md has no link to %s", file)
		}
	}
	if n := strings.Count(string(text), ".txt)"); n != len(files) {
		t.Errorf("docs/compatibility.md has %d links to lists, want %d", n, len(files))
	}
	changes, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promised, _ := strings.Cut(string(changes), "### Promised\n")
	promised, _, _ = strings.Cut(promised, "\n### ")
	var code strings.Builder
	for _, pattern := range []string{"internal/tests/promises/*_test.go", "window/redis/*_test.go"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(promised, -1)
	if len(names) < 11 {
		t.Errorf("CHANGELOG.md names %d tests that hold promises, want 11 or more", len(names))
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "\nfunc "+name[1]+"(t *testing.T)") {
			t.Errorf("CHANGELOG.md names %s, and there is no such test", name[1])
		}
	}
}
