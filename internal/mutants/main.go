// Command mutants changes the Lua scripts, a little at a time, and runs tests of the Redis
// store against each change. It prints the changes that no test sees: the survivors.
//
// docs/testing.md lists the survivors that make no difference, and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
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
	seed   = flag.Uint64("seed", 1, "which ones a sample has")
	only   = flag.String("only", "", "the files to change, with commas; default: all")
	long   = flag.Duration("timeout", 2*time.Minute, "how long the tests may take before a mutant counts as killed")
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
	names, err := files("lua")
	if err != nil {
		return err
	}
	if *only != "" {
		wanted := strings.Split(*only, ",")
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(wanted, name) })
	}
	survivors, tried := 0, 0
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("lua", filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if killed, output, err := t.kill(name, lua.Script, lua.Instances); err != nil || killed {
			return fmt.Errorf("%s: the tests fail without a change: %w\n%s", name, err, output)
		}
		all := mutate(name, string(text))
		for i, m := range pick(all) {
			script, instances := m.scripts(string(text))
			killed, _, err := t.kill(name, script, instances)
			if err != nil {
				return err
			}
			tried++
			if !killed {
				survivors++
				fmt.Println(m)
			}
			fmt.Fprintf(os.Stderr, "\r%s: %d of %d mutants, %d of all %d survive ", name, i+1, len(all), survivors, tried)
		}
		fmt.Fprintln(os.Stderr)
	}
	return nil
}

// pick returns the sample of a file's mutants, in their order.
func pick(all []mutant) []mutant {
	if *sample == 0 || *sample >= len(all) {
		return all
	}
	places := rand.New(rand.NewPCG(*seed, uint64(len(all)))).Perm(len(all))[:*sample]
	slices.Sort(places)
	var some []mutant
	for _, i := range places {
		some = append(some, all[i])
	}
	return some
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

// scripts returns the scripts of package lua with the mutant in place of its file, whose text
// is given.
func (m mutant) scripts(text string) (script, instances string) {
	return strings.Replace(lua.Script, text, m.text, 1), strings.Replace(lua.Instances, text, m.text, 1)
}

// tests are those of the Redis store, built once.
type tests struct{ dir, binary string }

// kill reports whether a test fails with these scripts, and what it says.
func (t tests) kill(name, script, instances string) (killed bool, output string, err error) {
	for file, text := range map[string]string{"script.lua": script, "instances.lua": instances} {
		if err := os.WriteFile(filepath.Join(t.dir, file), []byte(text), 0o600); err != nil {
			return false, "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), *long)
	defer cancel()
	for _, args := range suites(name) {
		test := exec.CommandContext(ctx, t.binary, append(args, "-test.failfast")...)
		test.Dir = filepath.Join("window", "redis")
		test.Env = append(os.Environ(), "SLIDING_WINDOW_SCRIPTS="+t.dir)
		out, err := test.CombinedOutput()
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			return true, string(out), nil
		}
		if err != nil {
			return false, "", err
		}
	}
	return false, "", nil
}
