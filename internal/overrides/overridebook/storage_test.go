package overridebook

import (
	"io/fs"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
)

// What is loaded is what was saved, but for when the store last said so: it has not, since a start.
func TestPlace(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir()) // where Caddy keeps its ID
	own := new(storagetest.Storage)
	for _, shared := range []bool{false, true} {
		p := NewFile("redis 127.0.0.1:6379", shared, nil)
		p.Use(own)
		if c, err := p.Load(); err != nil || c.Version != "" || c.Records != nil {
			t.Errorf("shared %t: %v, %v before anything was saved", shared, c, err)
		}
		if err := p.Save(Copy{Version: "1-x", Records: []overrides.Record{{ID: "a", Zone: "api", Deny: true}}, Read: time.Now()}); err != nil {
			t.Fatal(err)
		}
		c, err := p.Load()
		if err != nil || c.Version != "1-x" || len(c.Records) != 1 || c.Records[0].ID != "a" || !c.Read.IsZero() {
			t.Errorf("shared %t: got %+v, %v", shared, c, err)
		}
	}
	if n := len(own.Files()); n != 2 {
		t.Errorf("%d files, want one of this process and one of the store", n)
	}
	for _, key := range own.Files() {
		if err := own.Store(t.Context(), key, []byte(strings.Repeat("x", 10))); err != nil {
			t.Fatal(err)
		}
	}
	p := NewFile("", false, nil)
	p.Use(own)
	if _, err := p.Load(); err == nil {
		t.Error("a file that holds no overrides is loaded")
	}
}

// Saves leave nothing behind that runs, and no file besides the one: each Caddy has a place of its own, and needs no lock.
func TestNothingRunsAfterASave(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	dir := t.TempDir()
	p := NewFile("", false, nil)
	p.Use(&certmagic.FileStorage{Path: dir})
	before := runtime.NumGoroutine()
	for n := range 20 {
		if err := p.Save(Copy{Version: strconv.Itoa(n + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 { // the writer ends after Save
		if runtime.NumGoroutine() <= before {
			break
		}
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("%d goroutines are left of 20 saves", n)
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v, want one", files, err)
	}
}
