package overridebook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
)

// Copy is what was last known of a store's overrides. It does not change.
type Copy struct {
	Version string             `json:"version"`
	Records []overrides.Record `json:"records"`
	Past    []overrides.Record `json:"past,omitempty"` // have ended, and still matter to how far back zones look
	// Stamps has the version that wrote each record, by ID. An ID without a record is a tombstone: that version
	// deleted its record. Nil for a store that is not shared.
	Stamps map[string]string `json:"stamps,omitempty"`
	// Floor is the version up to which all changes are known that have left no stamp.
	Floor string    `json:"floor,omitempty"`
	Read  time.Time `json:"-"` // when the store last said so
}

// Storage is what is used of Caddy's storage.
type Storage interface {
	Store(ctx context.Context, key string, value []byte) error
	Load(ctx context.Context, key string) ([]byte, error)
}

// Patience is the timeout of Caddy's storage.
const Patience = 5 * time.Second

// ErrSlow is the error of a storage that has not answered in time.
var ErrSlow = fmt.Errorf("no answer within %s: %w", Patience, context.DeadlineExceeded)

// File keeps the overrides of a store in Caddy's storage. Several Caddys may share the storage: each
// has a place of its own, so that no lock is needed. All methods are safe for concurrent use.
//
// A place writes one copy at a time, in a goroutine that ends with its last write. A write that hangs
// holds up those after it; when it ends, the copy that is wanted by then is written. So an older copy never
// takes the place of a newer one, however late the storage is.
type File struct {
	key    func() (string, error)
	failed func(error) // is called for a series of failed writes, once

	mu      sync.Mutex // guards all below; held for a few instructions
	storage Storage
	want    Copy          // what the storage is to hold
	isKept  bool          // whether the storage holds want
	writing chan struct{} // is closed when the write under way has ended; nil without one
	err     error         // of the last write
	told    bool          // failed was called since the last write that succeeded
}

// FileName is the name of the file in Caddy's storage, of a store that other Caddys do not share.
const FileName = "overrides.json"

// NewFile returns the place of a store, which other Caddys share or not. The function failed is told when
// writes begin to fail.
func NewFile(store string, shared bool, failed func(error)) *File {
	file := FileName
	if shared {
		sum := sha256.Sum256([]byte(store))
		file = "overrides-" + hex.EncodeToString(sum[:6]) + ".json"
	}
	return &File{failed: failed, isKept: true, key: sync.OnceValues(func() (string, error) {
		id, err := caddy.InstanceID() // an error if Caddy cannot keep its ID, and so has no place of its own
		return path.Join("sliding_window", id.String(), file), err
	})}
}

// Use sets the storage of the file from now on.
func (p *File) Use(storage Storage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storage = storage
}

// Keep writes c in place of earlier copies. It does not wait.
func (p *File) Keep(c Copy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.isKept = c, false
	p.write()
}

// Retry writes once more what could not be written. It does not wait.
func (p *File) Retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write()
}

// write begins to write what is wanted, unless that is done or under way. mu is held.
func (p *File) write() {
	if p.isKept || p.writing != nil {
		return
	}
	ended := make(chan struct{})
	p.writing = ended
	go func() {
		defer close(ended)
		for p.writeOnce() {
		}
	}()
}

// writeOnce writes what is wanted. It reports whether something else is wanted by then.
func (p *File) writeOnce() (again bool) {
	p.mu.Lock()
	want, storage := p.want, p.storage
	p.mu.Unlock()
	text, err := json.Marshal(want)
	slow := time.AfterFunc(Patience, func() { p.note(ErrSlow) })
	key, errKey := p.key()
	if err = errors.Join(err, errKey); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		err = storage.Store(ctx, key, text)
		cancel()
	}
	slow.Stop()
	p.note(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	again = p.want.Version != want.Version
	if p.isKept = err == nil && !again; !again {
		p.writing = nil
	}
	return again
}

// note reports the first error of a series.
func (p *File) note(err error) {
	p.mu.Lock()
	tell := err != nil && !p.told
	p.told = err != nil
	p.mu.Unlock()
	if tell {
		p.failed(err)
	}
}

// Wait returns the error of the last write when no write is under way, or ErrSlow after Patience.
func (p *File) Wait() error {
	p.mu.Lock()
	writing := p.writing
	p.mu.Unlock()
	if writing != nil {
		patience := time.NewTimer(Patience)
		defer patience.Stop()
		select {
		case <-writing:
		case <-patience.C:
			return ErrSlow
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isKept {
		return nil
	}
	return p.err
}

// Save writes c, and waits. After an error the storage is to hold what it held before, in place of c: that is
// written as soon as the storage answers, and once more at each Retry.
func (p *File) Save(c Copy) error {
	p.mu.Lock()
	before := p.want
	p.mu.Unlock()
	p.Keep(c)
	err := p.Wait()
	if err != nil {
		p.Keep(before)
	}
	return err
}

// Load returns what was kept; nothing if there is nothing. After Patience its context ends, which a storage may
// ignore.
func (p *File) Load() (Copy, error) {
	key, err := p.key()
	if err != nil {
		return Copy{}, nil //nolint:nilerr // nothing was kept
	}
	p.mu.Lock()
	storage := p.storage
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	text, err := storage.Load(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return Copy{}, nil
	}
	if err != nil {
		return Copy{}, err
	}
	var c Copy
	if err := json.Unmarshal(text, &c); err != nil || max(len(c.Records), len(c.Past)) > overrides.MaxRecords {
		return Copy{}, fmt.Errorf("%s holds no overrides; delete it", path.Base(key))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isKept && p.writing == nil {
		p.want = c
	}
	return c, nil
}
