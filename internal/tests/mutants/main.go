// Command mutants changes the Lua scripts, a little at a time, and runs tests of the Redis
// store against each change. It prints the changes that no test sees: the survivors.
//
// internal/tests/README.md lists the survivors that make no difference, and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/lua"
)

var (
	sample = flag.Int("sample", 0, "how many mutants of each file to try; 0: all")
	seed   = flag.Uint64("seed", 1, "which mutants are tried first")
	during = flag.Duration("for", 0, "how long to go on; 0: until all are tried")
	only   = flag.String("only", "", "the files to change, with commas; default: all")
	long   = flag.Duration("timeout", time.Minute, "how long a run of tests may take before a mutant counts as killed")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := tests{dir: dir, binary: filepath.Join(dir, "redis.test")}
	build := exec.Command("go", "test", "-c", "-o", t.binary, "./window/redis")
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	all, err := mutants()
	if err != nil {
		return err
	}
	began := time.Now()
	switch killed, output, err := t.kill("all", originals); {
	case err != nil:
		return err
	case killed:
		return fmt.Errorf("the tests fail without a mutant:\n%s", output)
	}
	fmt.Fprintf(os.Stderr, "the tests pass without a mutant, in %s; %d mutants\n", time.Since(began).Round(time.Second), len(all))
	tried, survivors := map[string]int{}, map[string]int{}
	for i, m := range all {
		if *during > 0 && time.Since(began) > *during {
			break
		}
		killed, _, err := t.kill(m.file, m.scripts)
		if err != nil {
			return err
		}
		tried[m.file]++
		if !killed {
			survivors[m.file]++
			fmt.Println(m)
		}
		fmt.Fprintf(os.Stderr, "\r%d of %d ", i+1, len(all))
	}
	fmt.Fprintln(os.Stderr)
	for _, name := range slices.Sorted(maps.Keys(tried)) {
		fmt.Printf("%s: %d of %d survive\n", name, survivors[name], tried[name])
	}
	return nil
}

// mutants returns those to try: one of each file, in an order of chance, then another of each,
// so that any number of them is an even sample.
func mutants() ([]mutant, error) {
	names, err := files("lua")
	if err != nil {
		return nil, err
	}
	var turns [][]mutant
	for _, name := range names {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join("lua", filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		own := mutate(name, string(text))
		r := rand.New(rand.NewPCG(*seed, 0))
		r.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		if *sample > 0 {
			own = own[:min(*sample, len(own))]
		}
		for i, m := range own {
			m.putInto(string(text))
			if i == len(turns) {
				turns = append(turns, nil)
			}
			turns[i] = append(turns[i], m)
		}
	}
	return slices.Concat(turns...), nil
}

// files returns the scripts of a directory and of those in it.
func files(dir string) (names []string, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".lua") {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// originals are the scripts of package lua, by the files from which window/redis reads them.
var originals = map[string]string{"script.lua": lua.Script, "instances.lua": lua.Instances, "overrides.lua": lua.Overrides, "enforce.lua": lua.Enforce, "bans.lua": lua.Bans}

// putInto makes the scripts of package lua with the mutant in place of its file, whose text is
// given.
func (m *mutant) putInto(text string) {
	m.scripts = make(map[string]string)
	for name, script := range originals {
		m.scripts[name] = strings.NewReplacer(text, m.text, lua.WithValues(text), lua.WithValues(m.text)).Replace(script)
	}
	if m.file == "constants.lua" {
		m.scripts["script.lua"] = strings.NewReplacer(changedValues(text, m.text)...).Replace(lua.Script)
	}
}

// changedValues returns the values of constants that differ between two texts of constants.lua, old and new, as the script
// has them: each in place of the name of its constant.
func changedValues(text, mutated string) (pairs []string) {
	lines, mutants := strings.Split(text, "\n"), strings.Split(mutated, "\n")
	for i, line := range lines {
		_, values, _ := strings.Cut(line, " = ")
		_, changed, _ := strings.Cut(mutants[i], " = ")
		of := strings.Split(changed, ", ")
		for j, value := range strings.Split(values, ", ") {
			if of[j] != value {
				pairs = append(pairs, "("+value+")", "("+of[j]+")")
			}
		}
	}
	return pairs
}

// tests are those of the Redis store, built once.
type tests struct{ dir, binary string }

// kill reports whether a test fails with these scripts, and what it says.
func (t tests) kill(name string, scripts map[string]string) (killed bool, output string, err error) {
	for file, text := range scripts {
		if err := os.WriteFile(filepath.Join(t.dir, file), []byte(text), 0o600); err != nil {
			return false, "", err
		}
	}
	for _, args := range suites(name) {
		ctx, cancel := context.WithTimeout(context.Background(), *long)
		defer cancel()
		test := exec.CommandContext(ctx, t.binary, append(args, "-test.failfast")...)
		test.Dir = filepath.Join("window", "redis")
		test.Env = append(os.Environ(), "SLIDING_WINDOW_SCRIPTS="+t.dir)
		out, err := test.CombinedOutput()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return true, fmt.Sprintf("%v: %v\n%s", args, err, out), nil
		}
		if err != nil {
			return false, "", err
		}
	}
	return false, "", nil
}
