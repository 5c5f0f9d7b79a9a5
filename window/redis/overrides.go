package redis

import (
	"context"
	"time"

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

// enforceKey names the hash that holds the last order for each zone.
func (s *Store) enforceKey() string {
	return s.namings[0].LastingKey("enforce")
}

// ReadOverrides returns the records that stores of this prefix share, by their IDs, and their version. The
// records are nil if known is the version. The version is empty if no record was ever written, or if all are lost. The orders
// are those of WriteEnforce.
func (s *Store) ReadOverrides(ctx context.Context, known string) (version string, records, orders map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pipe := s.client.Pipeline()
	now, all := pipe.HMGet(ctx, s.overridesKey(), "v"), pipe.HGetAll(ctx, s.enforceKey())
	if _, err = pipe.Exec(ctx); err != nil {
		return "", nil, nil, s.words.Fail(ctx, err)
	}
	orders = all.Val()
	if version, _ = now.Val()[0].(string); version == known || version == "" {
		return version, nil, orders, nil
	}
	if records, err = s.client.HGetAll(ctx, s.overridesKey()).Result(); err != nil {
		return "", nil, nil, s.words.Fail(ctx, err)
	}
	if version = records["v"]; version == "" { // the hash may have gone since, or have changed
		return "", nil, orders, nil
	}
	delete(records, "v")
	return version, records, orders, nil
}

// WriteEnforce writes an order for each zone, in the place of the zone's last one. All are kept as long
// as the newest.
func (s *Store) WriteEnforce(ctx context.Context, orders map[string]string, keep time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pipe := s.client.Pipeline()
	pipe.HSet(ctx, s.enforceKey(), orders)
	pipe.PExpireAt(ctx, s.enforceKey(), time.Now().Add(keep))
	_, err := pipe.Exec(ctx)
	return s.words.Fail(ctx, err)
}

// WriteOverrides takes some records out and writes others, and makes next the version. If known is
// not the version, it writes nothing. A known version that is empty replaces all records. It returns
// the version that holds then. After an error that wraps window.ErrUnknown they may be written.
func (s *Store) WriteOverrides(ctx context.Context, known, next string, gone []string, records map[string]string) (version string, err error) {
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
	return version, s.words.Fail(ctx, err)
}
