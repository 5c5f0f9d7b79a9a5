package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

// overridesKey names the hash that holds the overrides: another one for stores that keep no keys. It
// outlives the format of counters.
func (s *Store) overridesKey() string {
	if s.namings[0].Hashes() {
		return s.namings[0].LastingKey("overrides-hashed")
	}
	return s.namings[0].LastingKey("overrides")
}

// ReadOverrides returns the records that stores of this prefix share, by their IDs, and their version. The
// records are nil if known is the version. The version is empty if no record was ever written, or if all are lost. An error
// that wraps window.ErrForeign says that the key holds other data.
func (s engineStore) ReadOverrides(ctx context.Context, known string) (version string, records map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	now, err := s.client.HMGet(ctx, s.overridesKey(), "v").Result()
	if err != nil {
		return "", nil, s.failShared(ctx, s.overridesKey(), err)
	}
	if version, _ = now[0].(string); version == known || version == "" {
		return version, nil, nil
	}
	if records, err = s.client.HGetAll(ctx, s.overridesKey()).Result(); err != nil {
		return "", nil, s.failShared(ctx, s.overridesKey(), err)
	}
	if version = records["v"]; version == "" { // the hash may have gone since, or have changed
		return "", nil, nil
	}
	delete(records, "v")
	return version, records, nil
}

// WriteOverrides takes some records out and writes others, and makes next the version. If known is
// not the version, it writes nothing. A known version that is empty replaces all records. It returns
// the version that holds then. After an error that wraps window.ErrUnknown they may be written.
func (s engineStore) WriteOverrides(ctx context.Context, known, next string, gone []string, records map[string]string) (version string, err error) {
	args := make([]any, 0, 3+len(gone)+2*len(records))
	args = append(args, known, next, len(gone))
	for _, id := range gone {
		args = append(args, id)
	}
	for id, record := range records {
		args = append(args, id, record)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	version, err = s.client.EvalSha(ctx, scripts.Overrides, []string{s.overridesKey()}, args...).Text()
	return version, s.failShared(ctx, s.overridesKey(), err)
}

// failShared is Fail for a key that all Caddys share. If the key holds foreign data, the error says so.
func (s *Store) failShared(ctx context.Context, key string, err error) error {
	if err = s.words.Fail(ctx, err); errors.Is(err, window.ErrForeign) {
		return fmt.Errorf("%w; the key %s holds other data: delete it, as by DEL %[2]s; Caddy writes what it knows again", err, key)
	}
	return err
}
