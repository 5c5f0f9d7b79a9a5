package e2e_test

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

func TestReadmeLibrary(t *testing.T) {
	program := `package main
import ("context"; "fmt"; "time"
"github.com/slidingwindow/caddy-sliding-window/window"
"github.com/slidingwindow/caddy-sliding-window/window/memory")
func main() {
` + strings.Join(readmeBlocks(t, "go"), "") + "}\n"
	if out := run(t, program); !strings.Contains(program, "// "+out) {
		t.Errorf("it prints %q, and the README says something else", out)
	}
}

// run returns what a Go program prints.
func run(t *testing.T, program string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", file)
	cmd.Env = caddyrun.Environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestInterceptor calls the interceptor of docs/library.md for two users.
func TestInterceptor(t *testing.T) {
	out := run(t, `package main
import ("context"; "fmt"; "time"
"google.golang.org/grpc"; "google.golang.org/grpc/codes"; "google.golang.org/grpc/status"
"github.com/slidingwindow/caddy-sliding-window/window"
"github.com/slidingwindow/caddy-sliding-window/window/memory")
`+strings.Join(blocksOf(readFile(t, "docs/library.md"), "go"), "")+`
func main() {
	l, _ := window.NewLimiter(memory.New(memory.Options{}), "calls", window.Log{}, window.Policy{Limit: 1, Window: time.Hour})
	call := limited(l, func(ctx context.Context) string { return ctx.Value("user").(string) })
	for _, user := range []string{"anna", "anna", "bert"} {
		answer, err := call(context.WithValue(context.Background(), "user", user), 1, nil, func(_ context.Context, n any) (any, error) { return n, nil })
		fmt.Println(answer, status.Code(err), status.Code(err) == codes.OK)
	}
}
`)
	if want := "1 OK true\n<nil> ResourceExhausted false\n1 OK true\n"; out != want {
		t.Errorf("it prints %q, want %q", out, want)
	}
}

// TestLibraryModules holds which modules the library compiles in.
func TestLibraryModules(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| (?:`window`, )?`(window/[a-z]+)` \\|[^|]*\\| ([^|]*) \\|").FindAllStringSubmatch(readFile(t, "docs/library.md"), -1)
	if len(rows) != 3 {
		t.Fatalf("docs/library.md has rows %q, want 3", rows)
	}
	for _, row := range rows {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./"+row[1]).Output()
		if err != nil {
			t.Fatal(err)
		}
		documented, compiled := setOf(), setOf()
		for _, m := range regexp.MustCompile("`(.+?)`").FindAllStringSubmatch(row[2], -1) {
			documented[path.Base(m[1])] = true
		}
		for _, name := range strings.Fields(string(out)) {
			if name != module {
				compiled[path.Base(regexp.MustCompile(`/v\d+$`).ReplaceAllString(name, ""))] = true
			}
		}
		if !maps.Equal(documented, compiled) {
			t.Errorf("%s compiles %v in, docs/library.md says %v", row[1], compiled, documented)
		}
	}
}
