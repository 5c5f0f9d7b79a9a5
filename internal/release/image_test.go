package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stage is what a part of a Dockerfile that begins with FROM leaves: files in a folder, and how to run them.
type stage struct {
	root, workdir     string
	env               []string
	user, health, cmd []string
}

// path returns where a path of the stage is on disk.
func (s *stage) path(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(s.workdir, name)
	}
	return filepath.Join(s.root, name)
}

// followDockerfile does in folders what a Dockerfile says, without the images that it begins with: RUN lines run on this
// machine. It returns the last stage. It fails the test for an instruction that it does not know.
func followDockerfile(t *testing.T, context string, args map[string]string) *stage {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(read(t, context, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	stages := make(map[string]*stage)
	var s *stage
	for _, line := range parsed.AST.Children {
		var words []string
		for word := line.Next; word != nil; word = word.Next {
			words = append(words, word.Value)
		}
		switch instruction := strings.ToUpper(line.Value); instruction {
		case "FROM":
			s = &stage{root: openFolder(t), workdir: "/", env: os.Environ()}
			if len(words) == 3 {
				stages[words[2]] = s
			}
		case "ARG":
			for _, word := range words {
				value, ok := args[word]
				if !ok {
					t.Fatalf("ARG %s has no value in %v", word, maps.Keys(args))
				}
				s.env = append(s.env, word+"="+value)
			}
		case "WORKDIR":
			s.workdir = words[0]
			if err := os.MkdirAll(s.path("."), 0o755); err != nil {
				t.Fatal(err)
			}
		case "COPY":
			from := &stage{root: context, workdir: "/"}
			if len(line.Flags) > 0 {
				from = stages[strings.TrimPrefix(line.Flags[0], "--from=")]
			}
			source, target := from.path(words[0]), s.path(words[1])
			if words[0] == "." {
				source += "/."
			}
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, ".", "cp", "-a", source, target)
		case "RUN":
			cmd := exec.Command("sh", "-c", words[0])
			cmd.Dir, cmd.Env = s.path("."), s.env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", words[0], err, out)
			}
		case "USER":
			s.user = words
		case "HEALTHCHECK":
			s.health = words
		case "CMD":
			s.cmd = words
		case "EXPOSE":
		default:
			t.Fatalf("%s of the Dockerfile is not known to the test", instruction)
		}
	}
	return s
}

// openFolder returns a temporary folder that all users may read.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
