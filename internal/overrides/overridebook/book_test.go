package overridebook

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// With the memory store, overrides survive a restart: a change is in Caddy's storage before it holds. One that
// cannot be written changes nothing.
func TestOverridesSurviveARestart(t *testing.T) {
	store, storage := inMemory(t), new(storagetest.Storage)
	before := bookOf(t, store, storage)
	setRecords(t, before, overridestest.Denied("anna"))
	want, _ := before.Current()
	for _, name := range storage.Files() {
		if !strings.HasPrefix(name, "sliding_window/") || !strings.HasSuffix(name, "/overrides.json") || strings.Count(name, "/") != 2 {
			t.Errorf("file %s", name)
		}
	}
	storage.Fail(errors.New("disk full"))
	_, err := before.Change(t.Context(), "", func([]overrides.Record) ([]overrides.Record, error) { return nil, nil })
	if c, _ := before.Current(); !errors.Is(err, window.ErrUnavailable) || c.Version != want.Version {
		t.Errorf("disk full: got %v, version %s", err, c.Version)
	}
	storage.Fail(nil)
	setRecords(t, before, overridestest.Denied("anna"), overridestest.Denied("otto"))
	want, _ = before.Current()
	if c, _ := bookOf(t, store, storage).Current(); c.Version != want.Version || len(c.Records) != 2 {
		t.Errorf("after a restart: got %+v, want %+v", c, want)
	}
}

// Two Caddys change the overrides of one Redis at the same time: nothing is lost. A Redis that is away leaves the
// last copy in force, also after a restart; one that has lost them gets them back.
func TestOverridesOnRedis(t *testing.T) {
	server := redistest.Start(t)
	store := onRedis(t, server.Addr)
	storages := []*storagetest.Storage{new(storagetest.Storage), new(storagetest.Storage)}
	a, b := bookOf(t, store, storages[0]), bookOf(t, store, storages[1])
	add := func(book *Book, key string) error {
		r := overridestest.Denied(key)
		r.Zone = t.Name()
		if err := r.Complete(time.Now()); err != nil {
			return err
		}
		_, err := book.Change(t.Context(), "", func(all []overrides.Record) ([]overrides.Record, error) { return append(all, r), nil })
		return err
	}
	count := func(book *Book, want int, wantLost bool) {
		t.Helper()
		book.Look(t.Context())
		if c, lost := book.Current(); len(c.Records) != want || lost != wantLost {
			t.Errorf("got %d overrides, lost %v, want %d, %v", len(c.Records), lost, want, wantLost)
		}
	}
	done := make(chan error)
	for i, book := range []*Book{a, b} {
		go func() {
			for n := range 5 {
				if err := add(book, strings.Repeat("k", 1+2*n+i)); err != nil && !errors.Is(err, ErrChanged) {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	a.Look(t.Context())
	c, _ := a.Current()
	all := len(c.Records)
	if all < 6 {
		t.Errorf("only %d of 10 changes were made", all)
	}
	count(b, all, false)

	if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	count(a, all, false)
	count(bookOf(t, store, storages[1]), all, false)
	if err := add(b, "one more"); err != nil {
		t.Error(err)
	}
	count(a, all+1, false)
	server.Kill()
	count(a, all+1, false)
	count(bookOf(t, store, storages[0]), all+1, false)
	if err := add(a, "away"); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("away: got %v", err)
	}
	count(a, all+1, false)
}

// A record that a newer version, or somebody else, has put into the store is not applied: it names no
// limit, or no selector, that this version knows.
func TestOverrideOfAnotherVersion(t *testing.T) {
	b, z := running(t)
	for what, record := range map[string]overrides.Record{
		"a limit that is not known":    {All: true},
		"a selector that is not known": {Deny: true},
		"a negative factor":            {All: true, Factor: -1},
		"two answers":                  {All: true, Deny: true, Exempt: true},
	} {
		record.ID, record.Zone, record.Created = "other", t.Name(), time.Now()
		b.mu.Lock()
		b.install(Copy{Version: "1-x", Records: []overrides.Record{record}})
		b.mu.Unlock()
		if z.InForce.Rule(what) != nil || z.InForce.LookBack(what) != 0 {
			t.Errorf("%s: it is applied", what)
		}
		if len(z.InForce.Misfits()) != 1 {
			t.Errorf("%s: it is no misfit", what)
		}
	}
}

// Sites can serve before the app starts: zones have what Caddy's storage has by then.
func TestOverridesBeforeTheStart(t *testing.T) {
	store, storage, z := inMemory(t), new(storagetest.Storage), newZone(t)
	setRecords(t, bookOf(t, store, storage), overridestest.Denied("anna"))
	New(store).Preload(z, storage)
	if r := z.InForce.Rule("anna"); r == nil || !r.Deny {
		t.Errorf("anna, who is denied: %+v", r)
	}
	if r := z.InForce.Rule("otto"); r != nil {
		t.Errorf("otto: %+v", r)
	}
}
