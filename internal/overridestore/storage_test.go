package overridestore

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

type files map[string]string

func (files) Lock(context.Context, string) error   { return nil }
func (files) Unlock(context.Context, string) error { return nil }

func (f files) Store(_ context.Context, key string, value []byte) error {
	f[key] = string(value)
	return nil
}

func (f files) Load(_ context.Context, key string) ([]byte, error) {
	if text, ok := f[key]; ok {
		return []byte(text), nil
	}
	return nil, fs.ErrNotExist
}

// What is loaded is what was saved, but for when the store last said so: it has not, since a start.
func TestPlace(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir()) // where Caddy keeps its ID
	own := make(files)
	for _, shared := range []bool{false, true} {
		p := New(own, "redis 127.0.0.1:6379", shared)
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
	if len(own) != 2 {
		t.Errorf("%d files, want one of this process and one of the store", len(own))
	}
	for key := range own {
		own[key] = strings.Repeat("x", 10)
	}
	if _, err := New(own, "", false).Load(); err == nil {
		t.Error("a file that holds no overrides is loaded")
	}
}
