package redis

import (
	"context"
	"strings"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/lua"
)

var overridesSHA = sha(lua.Overrides)

// overridesKey names the hash that holds the overrides: another one for stores that keep no keys. It
// outlives the format of counters.
func (s *Store) overridesKey() string {
	prefix := strings.TrimSuffix(s.namings[0].prefix, format)
	if s.namings[0].hash != nil {
		return prefix + "{overrides-hashed}"
	}
	return prefix + "{overrides}" // no counter's key has braces
}

// enforceKey names the hash that holds the last order for each zone.
func (s *Store) enforceKey() string {
	return strings.TrimSuffix(s.namings[0].prefix, format) + "{enforce}"
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
		return "", nil, nil, s.fail(ctx, err)
	}
	orders = all.Val()
	if version, _ = now.Val()[0].(string); version == known || version == "" {
		return version, nil, orders, nil
	}
	if records, err = s.client.HGetAll(ctx, s.overridesKey()).Result(); err != nil {
		return "", nil, nil, s.fail(ctx, err)
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
	return s.fail(ctx, err)
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
	version, err = s.client.EvalSha(ctx, overridesSHA, []string{s.overridesKey()}, args...).Text()
	return version, s.fail(ctx, err)
}

// HashKey returns the HMAC of a key under the secret number n, counted from 0: the current one, and
// the former one. It reports false if no secret has that number.
func (s *Store) HashKey(key string, n int) (sum [32]byte, ok bool) {
	if n >= len(s.namings) || s.namings[n].hash == nil {
		return sum, false
	}
	return s.namings[n].hash.sum(key), true
}
