package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMutate(t *testing.T) {
	var got []string
	for _, m := range mutate("file", "-- a < b\nlocal s = '1 < 2'\nx = min(a, -1) -- 3\nif a <= b then return end\nreturn a - b\n") {
		got = append(got, m.String())
	}
	want := []string{
		"file:3: `x = min(a, -1) -- 3` → `x = max(a, -1) -- 3`",
		"file:3: `x = min(a, -1) -- 3` → `x = min(a, 1) -- 3`",
		"file:3: `x = min(a, -1) -- 3` → `x = min(a, -2) -- 3`",
		"file:3: `x = min(a, -1) -- 3` → `x = min(a, -0) -- 3`",
		"file:4: `if a <= b then return end` → `if a < b then return end`",
		"file:5: `return a - b` → `return a + b`",
		"file:3: `x = min(a, -1) -- 3` → ``",
		"file:4: `if a <= b then return end` → ``",
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestScripts holds that every file is a part of a script, in which a mutant takes its place.
func TestScripts(t *testing.T) {
	names, err := files(filepath.Join("..", "..", "..", "lua"))
	if err != nil || len(names) < 12 {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "lua", name))
		if err != nil {
			t.Fatal(err)
		}
		all := mutate(name, string(text))
		if len(all) < 20 {
			t.Errorf("%s has %d mutants", name, len(all))
		}
		for _, m := range all {
			m.putInto(string(text))
			changed := 0
			for name, script := range m.scripts {
				if script != originals[name] {
					changed++
				}
			}
			if changed != 1 {
				t.Fatalf("%v changes %d scripts, want 1", m, changed)
			}
		}
	}
}
