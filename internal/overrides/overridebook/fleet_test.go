package overridebook

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

const overridesKey = "sw:{overrides}"

// keysOf returns the keys that have records.
func keysOf(b *Book) (keys []string) {
	c, _ := b.Current()
	for _, r := range c.Records {
		keys = append(keys, *r.Key)
	}
	slices.Sort(keys)
	return keys
}

// agree makes each book look twice, and fails unless all and the server have records of these keys.
func agree(t *testing.T, what string, admin *goredis.Client, books []*Book, keys ...string) {
	t.Helper()
	for range 2 {
		for _, b := range books {
			b.Look(t.Context())
		}
	}
	for i, b := range books {
		if got := keysOf(b); !slices.Equal(got, keys) {
			t.Errorf("%s: Caddy %d has overrides of %v, want %v", what, i, got, keys)
		}
	}
	c, _ := books[0].Current()
	fields := admin.HGetAll(t.Context(), overridesKey).Val()
	if parsed, err := parse(fields["v"], fields); err != nil || fields["v"] != c.Version || len(parsed.Records) != len(keys) {
		t.Errorf("%s: the server has %v, want version %s and %d records", what, fields, c.Version, len(keys))
	}
}

func lostTotal(t *testing.T, b *Book, reason string) float64 {
	t.Helper()
	n, _ := metricstest.Find(t, metricstest.Of(metrics.OverrideErrorsTotal), "caddy_sliding_window_override_errors_total", "store", b.name, "reason", reason)
	return n
}

// A Caddy that starts after the server was emptied, and sets an override, takes none away from the others: all have
// them, and the new one.
func TestNewCaddyAfterFlush(t *testing.T) {
	server := redistest.Start(t)
	admin, store := server.Client(t), onRedis(t, server.Addr)
	var books []*Book
	for range 3 {
		books = append(books, bookOf(t, store, new(storagetest.Storage)))
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if _, err := add(t, books[0], key); err != nil {
			t.Fatal(err)
		}
	}
	agree(t, "before", admin, books, "a", "b", "c", "d", "e")
	if err := admin.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	books = append(books, bookOf(t, store, new(storagetest.Storage)))
	if _, err := add(t, books[3], "f"); err != nil {
		t.Fatal(err)
	}
	agree(t, "after", admin, books, "a", "b", "c", "d", "e", "f")
	if n := lostTotal(t, books[0], "lost"); n != 1 {
		t.Errorf("the loss was told %v times, want once", n)
	}
}

// A server that comes back with an older state brings no override back that was deleted, and takes none away.
func TestOlderSnapshot(t *testing.T) {
	server := redistest.Start(t)
	admin, store := server.Client(t), onRedis(t, server.Addr)
	books := []*Book{bookOf(t, store, new(storagetest.Storage)), bookOf(t, store, new(storagetest.Storage))}
	for _, key := range []string{"deleted", "kept"} {
		if _, err := add(t, books[0], key); err != nil {
			t.Fatal(err)
		}
	}
	snapshot := admin.Dump(t.Context(), overridesKey).Val()
	_, err := books[1].Change(t.Context(), "", func(all []overrides.Record) ([]overrides.Record, error) {
		return slices.DeleteFunc(all, func(r overrides.Record) bool { return *r.Key == "deleted" }), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := add(t, books[1], "new"); err != nil {
		t.Fatal(err)
	}
	agree(t, "before", admin, books, "kept", "new")
	if err := admin.RestoreReplace(t.Context(), overridesKey, 0, snapshot).Err(); err != nil {
		t.Fatal(err)
	}
	agree(t, "after", admin, books, "kept", "new")
	if n := lostTotal(t, books[0], "lost"); n != 1 {
		t.Errorf("the loss was told %v times, want once", n)
	}
	agree(t, "a new Caddy", admin, append(books, bookOf(t, store, new(storagetest.Storage))), "kept", "new")
}

// A server that is no master any more, and has no overrides as it is loading those of the new master, has lost nothing.
func TestNothingIsLostInAFailover(t *testing.T) {
	server := redistest.Start(t)
	admin, b := server.Client(t), bookOf(t, onRedis(t, server.Addr), new(storagetest.Storage))
	if _, err := add(t, b, "anna"); err != nil {
		t.Fatal(err)
	}
	admins := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(args, err)
		}
	}
	step := func(what string, looks int, wantLost bool, wantTotal float64) {
		t.Helper()
		for range looks {
			b.Look(t.Context())
		}
		if _, lost := b.Current(); lost != wantLost || lostTotal(t, b, "lost") != wantTotal || len(keysOf(b)) != 1 {
			t.Errorf("%s: lost %v, told %v times, overrides of %v; want %v, %v", what, lost, lostTotal(t, b, "lost"), keysOf(b), wantLost, wantTotal)
		}
	}
	admins("RENAME", overridesKey, "aside")
	admins("REPLICAOF", "127.0.0.1", "1")
	step("a replica that is loading", 1, false, 0)
	admins("REPLICAOF", "NO", "ONE")
	admins("RENAME", "aside", overridesKey)
	step("it has loaded", 1, false, 0)
	admins("RENAME", overridesKey, "aside")
	admins("REPLICAOF", "127.0.0.1", "1")
	step("a replica that is loading again", 3, false, 0)
	admins("REPLICAOF", "NO", "ONE")
	step("a master that has none", 2, false, 1)
}

// A store that goes on to refuse what it has lost is reported once.
func TestStoreDoesNotTakeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &modelStore{name: t.Name()}
		b := store.bookOn(t, new(storagetest.Storage))
		if _, err := add(t, b, "anna"); err != nil {
			t.Fatal(err)
		}
		before := lostTotal(t, b, "lost")
		told := func() float64 { return lostTotal(t, b, "lost") - before }
		store.hash, store.readOnly = nil, true
		for _, step := range []struct {
			wait      time.Duration
			wantLost  bool
			wantTotal float64
		}{{refresh, false, 0}, {lossPatience, true, 1}, {time.Minute, true, 1}} {
			for began := time.Now(); time.Since(began) < step.wait; {
				time.Sleep(refresh)
				b.Look(t.Context())
			}
			if _, lost := b.Current(); lost != step.wantLost || told() != step.wantTotal || len(keysOf(b)) != 1 {
				t.Errorf("after %s: lost %v, told %v times, overrides of %v", step.wait, lost, told(), keysOf(b))
			}
		}
		store.readOnly = false
		b.Look(t.Context())
		if _, lost := b.Current(); lost || told() != 2 || len(store.hash) == 0 {
			t.Errorf("it takes them: lost %v, told %v times, the store has %v", lost, told(), store.hash)
		}
	})
}

// If the key of the overrides holds other data, what is known stays in force. The log and a metric tell, and a change says
// which key it is. When the key is deleted the overrides are written again.
func TestForeignOverrides(t *testing.T) {
	server := redistest.Start(t)
	admin, b := server.Client(t), bookOf(t, onRedis(t, server.Addr), new(storagetest.Storage))
	if _, err := add(t, b, "anna"); err != nil {
		t.Fatal(err)
	}
	for n, key := range []string{overridesKey, "sw:{enforce}"} {
		if err := admin.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		before := lostTotal(t, b, "foreign")
		b.Look(t.Context())
		if got := lostTotal(t, b, "foreign"); got <= before || len(keysOf(b)) != 1 {
			t.Errorf("%s: counted %v times, overrides of %v", key, got, keysOf(b))
		}
		if b.foreignLog.Due(foreignInterval) {
			t.Errorf("%s: the log has no line", key)
		}
		if n == 0 {
			_, err := add(t, b, "otto")
			if !errors.Is(err, window.ErrUnavailable) || !strings.Contains(err.Error(), "DEL "+key) || !strings.Contains(err.Error(), "nothing was changed") || strings.Contains(err.Error(), "status says ok") {
				t.Errorf("a change: got %v", err)
			}
		}
		if err := admin.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		agree(t, "deleted", admin, []*Book{b}, "anna")
	}
}

// A change whose answer is lost says that it may hold; one that was not sent says that it does not.
func TestChangeThatMayHold(t *testing.T) {
	store := &modelStore{}
	b := store.bookOn(t, new(storagetest.Storage))
	anna := overridestest.Denied("anna")
	anna.Zone = t.Name()
	if err := anna.Complete(time.Now()); err != nil {
		t.Fatal(err)
	}
	edit := func(to ...overrides.Record) func([]overrides.Record) ([]overrides.Record, error) {
		return func([]overrides.Record) ([]overrides.Record, error) { return to, nil }
	}
	for _, step := range []struct {
		what   string
		change func() (Copy, error)
		want   int
	}{
		{"set", func() (Copy, error) { return b.Change(t.Context(), "", edit(anna)) }, 1},
		{"deleted", func() (Copy, error) { return b.Change(t.Context(), "", edit()) }, 0},
		{"replaced", func() (Copy, error) { return b.Replace(t.Context(), "", []overrides.Record{anna}) }, 1},
	} {
		store.loseAnswer = true
		if _, err := step.change(); !errors.Is(err, ErrMayHold) || !errors.Is(err, window.ErrUnavailable) || !strings.Contains(err.Error(), "may hold") {
			t.Errorf("%s, and the answer was lost: got %v", step.what, err)
		}
		store.loseAnswer = false
		b.Look(context.Background())
		if got := keysOf(b); len(got) != step.want {
			t.Errorf("%s: got %v", step.what, got)
		}
	}
	store.away = true
	if _, err := add(t, b, "otto"); errors.Is(err, ErrMayHold) || !errors.Is(err, window.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was changed, and the overrides that hold stay in force; repeat it when GET /sliding_window/status says ok") {
		t.Errorf("it was not sent: got %v", err)
	}
}
