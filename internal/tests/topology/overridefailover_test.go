package topology_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides"
	"github.com/slidingwindow/caddy-sliding-window/internal/overrides/overridebook"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/overridestest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/storagetest"
)

// A failover in which no override is lost reports no loss, however often the Caddys look. Those that are set while the
// master changes and are acknowledged hold on all Caddys afterwards.
func TestOverridesInAFailover(t *testing.T) {
	for _, isBusy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy ", isBusy), func(t *testing.T) {
			t.Parallel()
			w := startWatched(t)
			w.options.Prefix = prefix + ":" + fmt.Sprint(isBusy)
			store := newStore(t, w.options, timeout).Engine()
			var books []*overridebook.Book
			for range 2 {
				b := overridebook.New(store)
				b.Begin(nil, new(storagetest.Storage))
				t.Cleanup(func() { b.End(nil) })
				books = append(books, b)
			}
			acknowledged := make(map[string]bool)
			set := func(n int) error {
				r := overridestest.Denied(fmt.Sprint(n))
				r.Zone = "api"
				if err := r.Complete(time.Now()); err != nil {
					t.Fatal(err)
				}
				_, err := books[n%2].Change(context.Background(), "", func(all []overrides.Record) ([]overrides.Record, error) { return append(all, r), nil })
				if err == nil {
					acknowledged[r.ID] = true
				}
				return err
			}
			caddyrun.Eventually(t, patience, "an override is set", func() bool { return set(0) == nil })
			follow(t, w.master, len(w.replicas))
			if err := w.sentinels[0].SentinelClient(t).Failover(t.Context(), "main").Err(); err != nil {
				t.Fatal(err)
			}
			n := 1
			look := func() {
				for _, b := range books {
					b.Look(t.Context())
				}
				if isBusy && n < 500 {
					_ = set(n)
					n++
				}
			}
			caddyrun.Eventually(t, patience, "a replica is promoted", func() bool {
				look()
				return w.replicas[0].IsMaster(t) || w.replicas[1].IsMaster(t)
			})
			caddyrun.Eventually(t, patience, "the old master follows, and has loaded", func() bool {
				look()
				return !w.master.IsMaster(t) && w.master.Client(t).Exists(t.Context(), w.options.Prefix+":{overrides}").Val() == 1
			})
			for range 50 {
				look()
			}
			for _, b := range books { // one of them has set the last override
				b.Look(t.Context())
			}
			for i, b := range books {
				c, lost := b.Current()
				holds := make(map[string]bool)
				for _, r := range c.Records {
					holds[r.ID] = true
				}
				for id := range acknowledged {
					if !holds[id] {
						t.Errorf("Caddy %d lacks an override that was acknowledged", i)
					}
				}
				if lost {
					t.Errorf("Caddy %d takes them for lost", i)
				}
			}
			told, _ := metricstest.Find(t, metricstest.Of(metrics.OverrideErrorsTotal), "caddy_sliding_window_override_errors_total", "store", store.String(), "reason", "lost")
			if told > 0 && !isBusy {
				t.Errorf("a loss was told %v times", told)
			}
			t.Logf("%d of %d changes were acknowledged, a loss was told %v times", len(acknowledged), n, told)
		})
	}
}
