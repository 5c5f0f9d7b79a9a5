package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
)

// storageName is the module in the place of Caddy's storage.
const storageName = "sliding_window_replay"

// storage is Caddy's storage in a replay: it keeps nothing, and has overrides only.
type storage struct {
	Overrides *overridebook.Copy `json:"overrides,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage." + storageName, New: func() caddy.Module { return new(storage) }}
}

// CertMagicStorage implements caddy.StorageConverter.
func (s *storage) CertMagicStorage() (certmagic.Storage, error) { return s, nil }

// Lock implements certmagic.Storage.
func (*storage) Lock(context.Context, string) error { return nil }

// Unlock implements certmagic.Storage.
func (*storage) Unlock(context.Context, string) error { return nil }

// Store implements certmagic.Storage.
func (*storage) Store(context.Context, string, []byte) error { return nil }

// Load implements certmagic.Storage.
func (s *storage) Load(_ context.Context, key string) ([]byte, error) {
	if s.Overrides == nil || path.Base(key) != overridebook.FileName {
		return nil, fs.ErrNotExist
	}
	return json.Marshal(s.Overrides)
}

// Delete implements certmagic.Storage.
func (*storage) Delete(context.Context, string) error { return nil }

// Exists implements certmagic.Storage.
func (*storage) Exists(context.Context, string) bool { return false }

// List implements certmagic.Storage.
func (*storage) List(context.Context, string, bool) ([]string, error) { return nil, nil }

// Stat implements certmagic.Storage.
func (*storage) Stat(context.Context, string) (certmagic.KeyInfo, error) {
	return certmagic.KeyInfo{}, fs.ErrNotExist
}

// readOverrides reads a file of what `override list --json` prints, or a list of records. Overrides that have ended are left
// out, and the others have no end: they decide on the whole log.
func readOverrides(name string) ([]overrides.Record, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var records []overrides.Record
	if json.Unmarshal(text, &records) != nil {
		var list control.OverrideList
		if err := json.Unmarshal(text, &list); err != nil || list.Stores == nil {
			return nil, fmt.Errorf("%s holds no overrides; use what override list --json prints, or a list", name)
		}
		for _, s := range list.Stores {
			records = append(records, s.Records...)
		}
	}
	now := time.Now()
	records = slices.DeleteFunc(records, func(r overrides.Record) bool { return r.Expired(now) })
	for i := range records {
		r := &records[i]
		if len(r.Hashes) > 0 {
			return nil, fmt.Errorf("%s: the override %s has the hash of a key in the place of the key, so that a replay cannot find it; take it out", name, r.ID)
		}
		if err := r.Complete(now); err != nil {
			return nil, fmt.Errorf("%s: override number %d: %w", name, i+1, err)
		}
		r.Until = nil
	}
	return records, nil
}
