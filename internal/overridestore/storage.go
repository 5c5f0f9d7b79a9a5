// Package overridestore keeps the overrides of a store in the storage of Caddy, for a start without the store.
package overridestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// Copy is what was last known of a store's overrides. Its records do not change.
type Copy struct {
	Version string             `json:"version"`
	Records []overrides.Record `json:"records"`
	Past    []overrides.Record `json:"past,omitempty"` // have ended, and still matter to how far back zones look
	Read    time.Time          `json:"-"`              // when the store last said so
}

// Storage is what is used of Caddy's storage.
type Storage interface {
	Lock(ctx context.Context, name string) error
	Unlock(ctx context.Context, name string) error
	Store(ctx context.Context, key string, value []byte) error
	Load(ctx context.Context, key string) ([]byte, error)
}

// storagePatience is how long Caddy's storage is waited for.
const storagePatience = 5 * time.Second

// Place keeps the overrides of a store in Caddy's storage. Several Caddys may share that: each
// has a place of its own.
type Place struct {
	storage Storage
	file    string // below the place of this Caddy
}

// New returns that of a store, which other Caddys share or not.
func New(storage Storage, store string, shared bool) *Place {
	s := &Place{storage, "overrides.json"}
	if shared {
		sum := sha256.Sum256([]byte(store))
		s.file = "overrides-" + hex.EncodeToString(sum[:6]) + ".json"
	}
	return s
}

// key returns the name of the file in the storage. It is an error if Caddy cannot keep its ID, and so has
// no place of its own.
func (s *Place) key() (string, error) {
	id, err := caddy.InstanceID()
	return path.Join("sliding_window", id.String(), s.file), err
}

// inTime calls f, and returns without it if a storage hangs.
func inTime(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), storagePatience)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		select {
		case err := <-done:
			return err
		default:
			return ctx.Err()
		}
	}
}

func (s *Place) Save(c Copy) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	return inTime(func(ctx context.Context) error {
		if err := s.storage.Lock(ctx, key); err != nil {
			return err
		}
		defer func() { _ = s.storage.Unlock(context.WithoutCancel(ctx), key) }()
		return s.storage.Store(ctx, key, text)
	})
}

// Load returns what was saved; nothing if there is nothing.
func (s *Place) Load() (Copy, error) {
	key, err := s.key()
	if err != nil {
		return Copy{}, nil //nolint:nilerr // nothing was kept
	}
	var text []byte
	err = inTime(func(ctx context.Context) (err error) {
		text, err = s.storage.Load(ctx, key)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return Copy{}, nil
	}
	if err != nil {
		return Copy{}, err
	}
	var c Copy
	if err := json.Unmarshal(text, &c); err != nil || max(len(c.Records), len(c.Past)) > overrides.MaxRecords {
		return Copy{}, fmt.Errorf("%s holds no overrides; delete it", s.file)
	}
	return c, nil
}
