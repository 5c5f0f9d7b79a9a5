package topology_test

import (
	"slices"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

const (
	hotKeys = 4
	// hotLimit is what each admits before it denies for the rest of the test.
	hotLimit = 200
)

// replicated is a master with replicas, one of which takes its place when it is gone.
type replicated interface {
	// parts returns the store's options, the master and its replicas.
	parts() (redis.Options, *redistest.Server, []*redistest.Server)
	// named waits until a client can know that a server is the master.
	named(l *load, master *redistest.Server)
	// spent returns what a replica, or the new master, knows to be spent on the counters.
	spent(t *testing.T, replica *redistest.Server, hot []window.Charge) ([]int64, error)
}

// testLost keeps the replicas from following the master, lets it admit requests that
// only it knows of, and takes it away.
func testLost(t *testing.T, r replicated, hot []window.Charge, takeAway func()) {
	o, master, replicas := r.parts()
	l := startLoad(t, newStore(t, o, timeout), hot, hotLimit/2) // the replicas are cut off before more is spent
	l.eventually("a quarter of the limit is spent", func() bool { return l.least() > hotLimit/4 })
	cut := follow(t, master, len(replicas))
	master.CutReplicas(t)
	alone := l.least()
	l.goOn()
	l.eventually("the master admits alone", func() bool { return l.least() > alone+hotLimit/10 })
	known := make(map[*redistest.Server][]int64)
	for _, s := range replicas {
		var err error
		if known[s], err = r.spent(t, s, hot); err != nil {
			t.Fatal(err)
		}
	}
	takeAway()
	gone := time.Now()
	promoted := promotion(l, replicas)
	took := time.Since(gone)
	r.named(l, promoted)
	there := time.Now()
	exhaust(l, r, promoted, hot)
	all := l.end()

	first, last, failed := outage(all)
	if late := last.Sub(there); failed == 0 || late > back {
		t.Errorf("%d requests failed, the last %s after there was a new master, want some and %s at most%s", failed, late, back, errorTexts(all))
	}
	var lost, over int64
	for i := range hot {
		before, interval := int64(0), int64(0)
		for _, a := range all {
			if a.hot == i && a.allowed && a.sent.Before(gone) {
				before++
				if a.got.After(cut) {
					interval++
				}
			}
		}
		own, more := before-known[promoted][i], l.admitted[i].Load()-hotLimit
		if own > interval {
			t.Errorf("counter %d: %d admissions are lost, and %d were made since the replicas were cut off", i, own, interval)
		}
		if more > max(0, own) {
			t.Errorf("counter %d: %d over the limit, and %d admissions are lost", i, more, own)
		}
		lost, over = lost+own, over+max(0, more)
	}
	if lost == 0 {
		t.Error("no admission is lost: the replicas must have followed")
	}
	forgotten := checkCharges(t, newStore(t, o, patience), all, cut, gone)
	t.Logf("%d requests; cut off for %s; %d admissions lost, %d over the limits of %d × %d; %d requests of their own forgotten",
		len(all), ms(gone.Sub(cut)), lost, over, len(hot), hotLimit, len(forgotten))
	t.Logf("promoted after %s, and announced after %s; %d requests failed within %s, the last %s after that; slowest answer %s%s",
		ms(took), ms(there.Sub(gone)), failed, ms(last.Sub(first)), ms(last.Sub(there)), ms(slowest(all)), errorTexts(all))
}

// exhaust waits until the new master, too, has admitted all that it may.
func exhaust(l *load, r replicated, promoted *redistest.Server, hot []window.Charge) {
	l.Helper()
	l.eventually("the new master has nothing left", func() bool {
		n, err := r.spent(l.T, promoted, hot)
		return err == nil && slices.Min(n) >= hotLimit
	})
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// follow waits until the replicas have all that the master has, and returns the time
// of which that is true.
func follow(t *testing.T, master *redistest.Server, replicas int) time.Time {
	t.Helper()
	at := time.Now()
	c := master.Client(t).Conn()
	defer func() { _ = c.Close() }()
	if err := c.Ping(t.Context()).Err(); err != nil { // WAIT looks back from a connection's last command
		t.Fatal(err)
	}
	if n, err := c.Wait(t.Context(), replicas, patience).Result(); err != nil || int(n) < replicas {
		t.Fatalf("%d of %d replicas follow: %v", n, replicas, err)
	}
	return at
}

// promotion waits until one of the replicas is a master.
func promotion(l *load, replicas []*redistest.Server) (promoted *redistest.Server) {
	l.Helper()
	l.eventually("a replica is promoted", func() bool {
		for _, s := range replicas {
			if s.IsMaster(l.T) {
				promoted = s
				return true
			}
		}
		return false
	})
	return promoted
}

// checkCharges holds that no request was charged twice, and that each that passed was
// charged, but for those of which the answer came while only the old master knew. It
// returns them.
func checkCharges(t *testing.T, store *redis.Store, all []asked, from, to time.Time) (forgotten []asked) {
	t.Helper()
	n := charges(t, store, all)
	for _, a := range all {
		switch {
		case a.once == "":
		case n[a.once] > 1:
			t.Errorf("request %s was charged %d times", a.once, n[a.once])
		case !a.allowed || n[a.once] == 1:
		case a.got.Before(from) || a.sent.After(to):
			t.Errorf("request %s passed and is not charged; its answer came %s after the last that all knew", a.once, a.got.Sub(from))
		default:
			forgotten = append(forgotten, a)
		}
	}
	return forgotten
}
