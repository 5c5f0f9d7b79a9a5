package redis_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRooms holds what each inner package knows: of the others only those that stand before it, and
// only some of them know the client of Redis.
func TestRooms(t *testing.T) {
	const client = "client"
	knows := []struct {
		room  string
		knows []string
	}{
		{"batch", nil},
		{"fingerprint", nil},
		{"naming", nil},
		{"scripts", nil},
		{"tasks", nil},
		{"failure", []string{client, "scripts"}},
		{"denials", []string{"fingerprint"}},
		{"gate", []string{"fingerprint"}},
		{"leases", []string{"batch", "fingerprint"}},
		{"resp", []string{"failure"}},
		{"totals", nil},
		{"wire", []string{client, "failure", "naming", "scripts", "totals"}},
		{"respguard", []string{client, "failure", "resp"}},
		{"rtt", []string{"failure", "wire"}},
		{"client", []string{client, "failure", "resp", "scripts", "tasks"}},
	}
	var rooms []string
	for _, k := range knows {
		rooms = append(rooms, k.room)
		var got []string
		files, err := filepath.Glob(filepath.Join("internal", k.room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, spec := range file.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(path, "github.com/redis/go-redis/") {
					got = append(got, client)
				} else if _, room, ok := strings.Cut(path, "/window/redis/internal/"); ok {
					got = append(got, room)
				}
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, k.knows) {
			t.Errorf("internal/%s knows %v, want %v", k.room, got, k.knows)
		}
		for _, other := range k.knows {
			if other != client && !slices.Contains(rooms, other) {
				t.Errorf("internal/%s knows internal/%s, which does not stand before it", k.room, other)
			}
		}
	}
	found, err := os.ReadDir("internal")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range found {
		if !slices.Contains(rooms, entry.Name()) {
			t.Errorf("internal/%s is not listed", entry.Name())
		}
	}
}
