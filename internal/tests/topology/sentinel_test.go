package topology_test

import (
	"math"
	"net"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// watched is a master with two replicas, and the Sentinels that watch them.
type watched struct {
	*testing.T
	cert      *redistest.Certificate
	master    *redistest.Server
	replicas  []*redistest.Server
	sentinels []*redistest.Server
	options   redis.Options
}

const prefix = "sw"

func startWatched(t *testing.T) *watched {
	cert := redistest.NewCertificate(t)
	w := &watched{T: t, cert: cert, master: redistest.StartTLS(t, cert)}
	for range 2 {
		w.replicas = append(w.replicas, redistest.StartReplica(t, cert, w.master))
	}
	for _, s := range append([]*redistest.Server{w.master}, w.replicas...) {
		allow(t, s, prefix)
	}
	w.sentinels = redistest.StartSentinels(t, cert, w.master, "main", len(w.replicas))
	w.options = redis.Options{
		Master: "main", SentinelUsername: redistest.SentinelUsername, SentinelPassword: redistest.SentinelPassword,
		Username: username, Password: password, TLS: cert.Client(), Prefix: prefix,
	}
	for _, s := range w.sentinels {
		w.options.Addresses = append(w.options.Addresses, s.TLSAddr)
	}
	return w
}

// TestFailover takes the master away under load, in several ways. What it admitted and
// no replica came to know is admitted again, and no more; no client is charged twice; and
// the new master is used without a word from anyone.
func TestFailover(t *testing.T) {
	t.Run("Killed", func(t *testing.T) {
		t.Parallel()
		w := startWatched(t)
		testLost(t, w, hotCharges(hotKeys, hotLimit, time.Hour, window.Zset{}), func() { w.master.Kill() })
	})
	t.Run("Hung", func(t *testing.T) {
		t.Parallel()
		w := startWatched(t)
		testLost(t, w, hotCharges(hotKeys, hotLimit, time.Hour, window.Zset{}), func() { w.master.Stop() })
	})
	t.Run("Planned", func(t *testing.T) { t.Parallel(); testPlanned(t) })
}

// testPlanned makes the Sentinels put a replica in place of a master that is well. The
// one that leads announces the new master when the other replicas follow it, and the
// old one is told later still: until the store hears of the new one, the old one
// admits what no other server comes to know.
func testPlanned(t *testing.T) {
	w := startWatched(t)
	hot := hotCharges(hotKeys, hotLimit, time.Hour, window.Zset{})
	l := startLoad(t, newStore(t, w.options, timeout), hot, math.MaxInt64)
	l.eventually("half of the limit is spent", func() bool { return l.least() > hotLimit/2 })
	announced := w.announcements()
	known := follow(t, w.master, len(w.replicas))
	if err := w.sentinels[0].SentinelClient(t).Failover(t.Context(), "main").Err(); err != nil {
		t.Fatal(err)
	}
	promoted := promotion(l, w.replicas)
	there := time.Now()
	announced(l)
	told := time.Now()
	exhaust(l, w, promoted, hot)
	all := l.end()

	first, last, failed := outage(all)
	if late := last.Sub(told); failed > 0 && late > back {
		t.Errorf("%d requests failed, the last %s after the new master was announced, want %s at most%s", failed, late, back, errorTexts(all))
	}
	forgotten := checkCharges(t, newStore(t, w.options, patience), all, known, told.Add(back))
	var until time.Time // the old master was used
	for _, a := range forgotten {
		until = a.got
	}
	var over int64
	for i := range hot {
		interval := int64(0)
		for _, a := range all {
			if a.hot == i && a.allowed && a.got.After(known) && a.sent.Before(until) {
				interval++
			}
		}
		more := max(0, l.admitted[i].Load()-hotLimit)
		if over += more; more > interval {
			t.Errorf("counter %d: %d over the limit, and %d were admitted while the old master was used", i, more, interval)
		}
	}
	t.Logf("%d requests; new master after %s, announced %s later, the old one used until %s after that; %d over the limits of %d × %d; %d requests of their own forgotten",
		len(all), ms(there.Sub(known)), ms(told.Sub(there)), ms(until.Sub(told)), over, hotKeys, hotLimit, len(forgotten))
	t.Logf("%d requests failed within %s; slowest answer %s%s", failed, ms(last.Sub(first)), ms(slowest(all)), errorTexts(all))
}

// announcements listens to the Sentinels. The function that it returns waits until
// each has announced a new master.
func (w *watched) announcements() func(l *load) {
	w.Helper()
	var heard []<-chan *goredis.Message
	for _, s := range w.sentinels {
		sub := s.SentinelClient(w.T).Subscribe(w.Context(), "+switch-master")
		w.Cleanup(func() { _ = sub.Close() })
		if _, err := sub.Receive(w.Context()); err != nil {
			w.Fatal(err)
		}
		heard = append(heard, sub.Channel())
	}
	return func(l *load) {
		l.Helper()
		for _, ch := range heard {
			select {
			case <-ch:
			case <-time.After(patience):
				l.Fatalf("not within %s: a Sentinel announces the new master", patience)
			}
		}
	}
}

// named waits until every Sentinel names a server as the master.
func (w *watched) named(l *load, master *redistest.Server) {
	l.Helper()
	for _, s := range w.sentinels {
		c := s.SentinelClient(l.T)
		l.eventually("the Sentinels agree on the new master", func() bool {
			addr, err := c.GetMasterAddrByName(l.Context(), "main").Result()
			return err == nil && net.JoinHostPort(addr[0], addr[1]) == master.TLSAddr
		})
	}
}

func (w *watched) parts() (redis.Options, *redistest.Server, []*redistest.Server) {
	return w.options, w.master, w.replicas
}

func (w *watched) spent(t *testing.T, replica *redistest.Server, hot []window.Charge) ([]int64, error) {
	return spent(t, replica.Client(t), hot)
}
