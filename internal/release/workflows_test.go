package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// root is the folder of the repository.
const root = "../.."

// workflow is what the tests read of a workflow.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Timeout     int `yaml:"timeout-minutes"`
		Uses        string
		Steps       []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// decode reads a YAML file of the repository.
func decode(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, root, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestWorkflows holds that workflows have no permission that a job does not name, run actions of one commit only, keep no
// credentials in their checkout, and call targets that make has.
func TestWorkflows(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	if err != nil || len(paths) < 5 {
		t.Fatalf("found the workflows %q, %v", paths, err)
	}
	var (
		pinned  = regexp.MustCompile(`^([\w-]+/[\w-]+)(?:/[\w/-]+)?@([0-9a-f]{40})$`)
		uses    = regexp.MustCompile(`(?m)^ +(?:- )?uses: (\S+)(.*)$`)
		makes   = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
		script  = regexp.MustCompile(`(?m)(?:^|\s)((?:\.ci|scripts)/[\w.-]+)`)
		targets = read(t, root, "Makefile")
		commits = make(map[string]string)
	)
	for _, path := range paths {
		file := filepath.Join(".github/workflows", filepath.Base(path))
		var w workflow
		decode(t, file, &w)
		if w.Permissions == nil || len(w.Permissions) > 0 {
			t.Errorf("%s: top-level permissions are %v, want {}", file, w.Permissions)
		}
		for _, m := range uses.FindAllStringSubmatch(read(t, root, file), -1) {
			pin := pinned.FindStringSubmatch(m[1])
			if pin == nil || !regexp.MustCompile(`^ # v\d`).MatchString(m[2]) {
				t.Errorf("%s: %s%s; write the commit in 40 digits, and # with the version", file, m[1], m[2])
				continue
			}
			if other := commits[pin[1]]; other != "" && other != pin[2]+m[2] {
				t.Errorf("%s: %s is pinned to two commits, %s and %s%s", file, pin[1], other, pin[2], m[2])
			}
			commits[pin[1]] = pin[2] + m[2]
		}
		for name, job := range w.Jobs {
			if len(job.Permissions) == 0 || job.Timeout == 0 {
				t.Errorf("%s: job %s has the permissions %v and the timeout %d; write both", file, name, job.Permissions, job.Timeout)
			}
			for _, step := range job.Steps {
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("%s: job %s: write persist-credentials: false", file, name)
				}
				for _, m := range makes.FindAllStringSubmatch(step.Run, -1) {
					if !strings.Contains(targets, "\n"+m[1]+":") {
						t.Errorf("%s: make has no target %s", file, m[1])
					}
				}
				for _, m := range script.FindAllStringSubmatch(step.Run, -1) {
					if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
						t.Errorf("%s: %v", file, err)
					}
				}
			}
		}
	}
}

// tracked returns the files of the repository that fit a pattern of git.
func tracked(t *testing.T, pattern string) []string {
	t.Helper()
	return strings.Fields(run(t, root, "git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern))
}

// TestDependencyUpdates holds that updates of every module wait for a week after their release.
func TestDependencyUpdates(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
			Cooldown    struct {
				Days int `yaml:"default-days"`
			}
		}
	}
	decode(t, ".github/dependabot.yml", &config)
	found := make(map[string]bool)
	for _, update := range config.Updates {
		if update.Cooldown.Days < 7 {
			t.Errorf("updates of %s wait for %d days, want 7", update.Ecosystem, update.Cooldown.Days)
		}
		for _, dir := range append(update.Directories, update.Directory) {
			found[update.Ecosystem+" "+dir] = true
		}
	}
	for pattern, ecosystem := range map[string]string{"*go.mod": "gomod", "*package.json": "npm", "*Dockerfile": "docker", ".github/workflows/ci.yml": "github-actions"} {
		for _, file := range tracked(t, pattern) {
			dir := strings.TrimSuffix("/"+filepath.Dir(file), ".")
			if ecosystem == "github-actions" {
				dir = "/"
			}
			if !found[ecosystem+" "+dir] {
				t.Errorf(".github/dependabot.yml leaves out %s in %s", ecosystem, dir)
			}
		}
	}
}

// TestFuzzTargets holds that a fuzzing service gets every fuzz target of the module, each from a package that it can compile:
// the service compiles test files as if they were the others of their package.
func TestFuzzTargets(t *testing.T) {
	clone, bin := filepath.Join(t.TempDir(), "clone"), t.TempDir()
	run(t, root, "git", "clone", "-q", ".", clone)
	shim := "#!/bin/sh\necho \"$@\" >>\"$OUT/targets\"\n"
	if err := os.WriteFile(filepath.Join(bin, "compile_native_go_fuzzer_v2"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	want := fuzzTargets(t, clone)
	cmd := exec.Command(filepath.Join(clone, ".clusterfuzzlite/build.sh"))
	cmd.Dir, cmd.Env = clone, append(os.Environ(), "OUT="+bin, "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []string
	names, packages := make(map[string]bool), make(map[string]bool)
	for line := range strings.Lines(read(t, bin, "targets")) {
		words := strings.Fields(line)
		got = append(got, words[1])
		if names[words[2]] {
			t.Errorf("two targets have the name %s", words[2])
		}
		names[words[2]] = true
		packages[words[0]] = true
		dir := filepath.Join(clone, strings.TrimPrefix(words[0], "github.com/slidingwindow/caddy-sliding-window/"))
		// The compiler of the service looks for the name in all files below the folder, and needs one.
		if found := strings.Fields(run(t, ".", "grep", "-rl", "--include=*.go", words[1], dir)); len(found) != 1 {
			t.Errorf("%s is in the files %q; rename the target", words[1], found)
		}
		for _, file := range glob(t, dir, "*_test.go") {
			if err := os.Rename(file, strings.TrimSuffix(file, "_test.go")+"_fuzzed.go"); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd = exec.Command("go", append([]string{"build", "-modfile=newest.mod", "-trimpath", "-tags", "nobadger,nomysql,nopgx"}, slices.Collect(maps.Keys(packages))...)...)
	cmd.Dir, cmd.Env = clone, append(os.Environ(), "CGO_ENABLED=0") // the build cache has this Caddy from TestCaddy
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("a fuzzing service gets\n%q\nand the repository has\n%q", got, want)
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// fuzzTargets returns the names of the functions of a module that fuzz.
func fuzzTargets(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != dir {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
				names = append(names, f.Name.Name)
			}
		}
		return nil
	})
	if err != nil || len(names) < 20 {
		t.Fatalf("found %d fuzz targets, %v", len(names), err)
	}
	slices.Sort(names)
	return names
}
