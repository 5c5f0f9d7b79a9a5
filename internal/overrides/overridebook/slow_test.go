package overridebook

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func add(t *testing.T, b *Book, key string) (version string, err error) {
	t.Helper()
	r := overridestest.Denied(key)
	r.Zone = t.Name()
	if err := r.Complete(time.Now()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Change(context.Background(), "", func(all []overrides.Record) ([]overrides.Record, error) { return append(all, r), nil })
	return c.Version, err
}

// A change that was refused because Caddy's storage is slow, or fails, does not hold after a restart: what the storage writes late
// is written over.
func TestRefusedChangeDoesNotLandLater(t *testing.T) {
	for name, failing := range map[string]bool{"slow": false, "fails after it has written": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, storage, release := inMemory(t), new(storagetest.Storage), make(chan struct{})
				b := bookOf(t, store, storage)
				want, err := add(t, b, "anna")
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if failing {
					storage.Fail(errors.New("no answer"))
				} else {
					storage.Before = func(int) { <-release }
				}
				if _, err := add(t, b, "otto"); !errors.Is(err, window.ErrUnavailable) {
					t.Errorf("a change that cannot be kept: got %v", err)
				}
				synctest.Wait()
				storage.Fail(nil)
				close(release)
				time.Sleep(2 * refresh)
				synctest.Wait()
				if c, _ := bookOf(t, store, storage.Copy()).Current(); c.Version != want || len(c.Records) != 1 {
					t.Errorf("after a restart: got %+v, want version %s", c, want)
				}
			})
		})
	}
}

// However slow Caddy's storage is, an older copy is not written over a newer one.
func TestOlderCopyIsNotKeptOverNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, storage, release := &modelStore{}, new(storagetest.Storage), make(chan struct{})
		storage.Before = func(call int) {
			if call == 0 {
				<-release
			}
		}
		other, b := store.bookOn(t, new(storagetest.Storage)), store.bookOn(t, storage)
		if _, err := add(t, other, "anna"); err != nil {
			t.Fatal(err)
		}
		go b.Look(context.Background())
		synctest.Wait()
		go func() { _, _ = add(t, b, "otto") }()
		synctest.Wait()
		close(release)
		synctest.Wait()
		want, _ := b.Current()
		if c, _ := store.bookOn(t, storage.Copy()).Current(); c.Version != want.Version || len(c.Records) != 2 {
			t.Errorf("Caddy's storage has version %s, want %s", c.Version, want.Version)
		}
	})
}

// A slow storage does not hold up the configuration. What it has holds as soon as it answers, before the app starts.
func TestSlowStorageDoesNotDelayAConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, storage := inMemory(t), new(storagetest.Storage)
		if _, err := add(t, bookOf(t, store, storage), "anna"); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		storage.BeforeLoad = func() { <-release }
		b, zones := New(store), []*Subscriber{newZone(t), newZone(t)}
		began := time.Now()
		for _, z := range zones {
			b.Preload(z, storage)
		}
		if took := time.Since(began); took > foresight {
			t.Errorf("two zones wait for %s, want %s", took, foresight)
		}
		close(release)
		synctest.Wait()
		for _, z := range zones {
			if r := z.InForce.Rule("anna"); r == nil || !r.Deny {
				t.Errorf("anna, who is denied: %+v", r)
			}
		}
	})
}

// Where Caddy's storage has the overrides, none is changed before they are known.
func TestNoChangeBeforeTheStorageIsRead(t *testing.T) {
	store, storage := inMemory(t), new(storagetest.Storage)
	if _, err := add(t, bookOf(t, store, storage), "anna"); err != nil {
		t.Fatal(err)
	}
	storage.Fail(errors.New("away"))
	b := bookOf(t, store, storage)
	if _, err := add(t, b, "otto"); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("storage away: got %v", err)
	}
	storage.Fail(nil)
	if _, err := add(t, b, "otto"); err != nil {
		t.Error(err)
	}
	if c, _ := b.Current(); len(c.Records) != 2 {
		t.Errorf("got %+v, want two records", c.Records)
	}
}
