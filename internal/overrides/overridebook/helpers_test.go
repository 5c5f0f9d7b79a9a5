package overridebook

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func TestMain(m *testing.M) {
	os.Exit(caddyrun.Main(m, func() {}))
}

// inMemory returns a memory store, which has no overrides of its own.
func inMemory(t *testing.T) window.Store {
	t.Helper()
	store := memory.New(memory.Options{SweepInterval: -1})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func onRedis(t *testing.T, address string) window.Store {
	t.Helper()
	store := redis.New(redis.Options{Addresses: []string{address}, Timeout: 2 * time.Second}).Engine()
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// newZone returns a zone whose key is one placeholder. It has the name of the test, and a limit of 1,000,000,000 in 1m.
func newZone(t *testing.T) *Subscriber {
	t.Helper()
	z := &Subscriber{
		Name: t.Name(), Longest: time.Minute, NotApplied: prometheus.NewCounter(prometheus.CounterOpts{Name: "not_applied_total", Help: "Records that do not fit."}),
		Orders: new(enforce.Sync), ApplyRemote: func(enforce.Order) {}, InForce: new(InForce),
	}
	z.Records = func(h overrides.Hasher) overrides.Target {
		return overrides.Target{
			Name: z.Name, Single: true, IPv4Prefix: 32, IPv6Prefix: 64, Hasher: h,
			KeyOf: func(values []string) (string, error) { return values[0], nil },
			Fit: func(r *overrides.Rule) error {
				limit, err := overrides.Scale(1_000_000_000, r.Factor)
				return errors.Join(err, window.Policy{Limit: limit, Window: z.Longest}.Check())
			},
		}
	}
	return z
}

// bookOf returns a book of a process of its own, on a store and a storage.
func bookOf(t *testing.T, store window.Store, storage Storage, zones ...*Subscriber) *Book {
	t.Helper()
	b := New(store)
	b.Begin(zones, storage)
	t.Cleanup(func() { b.End(zones) })
	return b
}

// running returns a book and the only zone of it, until the end of the test.
func running(t *testing.T) (*Book, *Subscriber) {
	t.Helper()
	z := newZone(t)
	return bookOf(t, inMemory(t), new(storagetest.Storage), z), z
}

// setRecords makes records all that there are. Those without a zone are of the test's.
func setRecords(t *testing.T, b *Book, records ...overrides.Record) []overrides.Record {
	t.Helper()
	for i := range records {
		if records[i].Zone == "" {
			records[i].Zone = t.Name()
		}
		if err := records[i].Complete(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	c, err := b.Change(context.Background(), "", func([]overrides.Record) ([]overrides.Record, error) { return records, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c.Records
}

// limited returns a record that limits a key to 10.
func limited(key, window string) overrides.Record {
	return overridestest.Limited(key, overrides.RecordLimit{Max: 10, Window: window})
}
