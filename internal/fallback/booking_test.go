package fallback_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/fallback"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// bookedAt is a remote that notes when it books which key.
type bookedAt struct {
	*remote
	mu   sync.Mutex
	keys []string
	at   []time.Time
}

func (r *bookedAt) ChargeMore(ctx context.Context, c window.Charge, units int64) error {
	err := r.remote.ChargeMore(ctx, c, units)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keys, r.at = append(r.keys, c.Key), append(r.at, time.Now())
	}
	return err
}

// What is owed is booked once the store is back, though no request asks for it: the oldest
// first, few at first, and never more in a while than is documented.
func TestBookedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const counters = 2_000
		r := &bookedAt{remote: newRemote()}
		s := &site{Guard: fallback.New(r, fallback.Options{}), remote: r.remote}
		s.EnableLocal()
		defer s.close(t)
		s.away(t)
		time.Sleep(time.Second) // the key that was used for it is over
		var want []string
		for i := range counters {
			want = append(want, strconv.Itoa(i))
			s.passed(t, 3, charge("zone", strconv.Itoa(i), 10, time.Hour))
			time.Sleep(2 * time.Millisecond)
		}
		start := time.Now()
		s.remote.become(up)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.remote.booked("zone"); got != 3*counters || len(r.keys) != counters {
			t.Errorf("%d units were booked in %d calls, want %d in %d", got, len(r.keys), 3*counters, counters)
		}
		// Those of a round are booked at the same time.
		for i, key := range want {
			if at := slices.Index(r.keys, key); at < i-fallback.BookMost || at > i+fallback.BookMost {
				t.Fatalf("counter %s is booked as number %d", key, at)
			}
		}
		for i := range r.at {
			if i+4*fallback.BookMost < len(r.at) && r.at[i+4*fallback.BookMost].Sub(r.at[i]) < 3*fallback.BookPause {
				t.Fatalf("%d counters are booked within %s", 4*fallback.BookMost, r.at[i+4*fallback.BookMost].Sub(r.at[i]))
			}
		}
		t.Logf("%d counters, the last one %s after the store was back", len(r.keys), r.at[len(r.at)-1].Sub(start))
	})
}

// The store comes and goes while the background books: nothing is lost, and nothing is
// booked twice. What may have been booked still counts here.
func TestBookingIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const counters = 5_000
		s := newSite(t, newRemote())
		s.away(t)
		for i := range counters {
			s.passed(t, 4, charge("zone", strconv.Itoa(i), 10, time.Hour))
		}
		for i := range 12 {
			s.remote.become(up)
			time.Sleep(time.Duration(300+i*7) * time.Millisecond)
			s.remote.become([]mode{down, busy, lost, dropped}[i%4])
			time.Sleep(300 * time.Millisecond)
		}
		s.remote.become(up)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got, lost := s.remote.booked("zone"), s.remote.lost("zone"); got+lost != 4*counters || lost == 0 || got < 3*counters {
			t.Errorf("%d units were booked and %d lost on the way, want %d together", got, lost, 4*counters)
		}
		s.away(t)
		for i := range counters {
			if got := s.passed(t, 20, charge("zone", strconv.Itoa(i), 10, time.Hour)); got != 6 {
				t.Fatalf("counter %d: %d more pass, want 6", i, got)
			}
		}
	})
}

// A reload, and the end of the last guard, lose nothing of what is owed.
func TestBookingOutlivesReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, r := fallback.NewCounts(), newRemote()
		guard := func() *site {
			s := &site{Guard: fallback.New(r, fallback.Options{Counts: counts}), remote: r}
			s.EnableLocal()
			return s
		}
		old := guard()
		old.away(t)
		young := guard()
		for i := range 100 {
			old.passed(t, 2, charge("reload", strconv.Itoa(i), 10, time.Hour))
		}
		if err := old.Close(); err != nil { // the young one has not decided on anything
			t.Error(err)
		}
		r.become(up)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := r.booked("reload"); got != 200 {
			t.Errorf("%d units were booked after a reload, want 200", got)
		}
		r.become(busy)
		for i := range 100 {
			young.passed(t, 2, charge("end", strconv.Itoa(i), 10, time.Hour))
		}
		r.become(up)
		if err := errors.Join(young.Close(), counts.Close()); err != nil {
			t.Error(err)
		}
		if got := r.booked("end"); got != 200 {
			t.Errorf("%d units were booked at the end, want 200", got)
		}
		_ = r.Close()
	})
}

// A counter that cannot be booked does not keep the others waiting.
func TestForeignDebtor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &foreignRemote{remote: newRemote()}
		s := &site{Guard: fallback.New(r, fallback.Options{}), remote: r.remote}
		s.EnableLocal()
		defer s.close(t)
		s.away(t)
		for i := range 100 {
			for _, zone := range []string{"foreign", "zone"} {
				s.passed(t, 1, charge(zone, strconv.Itoa(i), 10, time.Hour))
			}
		}
		s.back()
		synctest.Wait()
		if got := s.remote.booked("zone"); got != 100 {
			t.Errorf("%d units were booked beside foreign counters, want 100", got)
		}
		before := s.remote.attempts()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if tries := s.remote.attempts() - before; tries < 100 || tries > 2_500 {
			t.Errorf("100 foreign counters were tried %d times in 10 s", tries)
		}
	})
}

// foreignRemote has something else in the place of the counters of a zone.
type foreignRemote struct{ *remote }

func (r *foreignRemote) ChargeMore(ctx context.Context, c window.Charge, units int64) error {
	if c.Zone == "foreign" {
		locked(r.remote, func() int { r.tries++; return 0 })
		return errors.Join(window.ErrUnavailable, window.ErrForeign)
	}
	return r.remote.ChargeMore(ctx, c, units)
}

// A counter that is charged with a short window, too, is owed for the longest one.
func TestOwedForTheLongestWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, s *site) {
		long, short := charge("zone", "key", 100, time.Hour), charge("zone", "key", 100, time.Second)
		s.away(t)
		s.passed(t, 5, long)
		time.Sleep(10 * time.Second)
		s.passed(t, 3, short)
		time.Sleep(10 * time.Second)
		s.remote.become(up)
		_, _ = s.Take(t.Context(), []window.Charge{short})
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.remote.booked("zone"); got != 8 {
			t.Errorf("%d units were booked, want 8", got)
		}
	})
}

// More counters than the list holds: the others are booked when they are asked for.
func TestDebtorsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, counters = 64 * 32, 3_000
		s := newSite(t, newRemote())
		s.BoundDebtors(most)
		s.away(t)
		for i := range counters {
			s.passed(t, 1, charge("short", strconv.Itoa(i), 10, time.Second))
		}
		time.Sleep(2 * time.Second)
		for i := range counters {
			s.passed(t, 1, charge("zone", strconv.Itoa(i), 10, time.Hour))
		}
		s.remote.become(up)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.remote.booked("zone"); got < most*9/10 || got > most {
			t.Errorf("%d counters were booked in the background, want %d", got, most)
		}
		for i := range counters {
			if _, err := s.Take(t.Context(), []window.Charge{charge("zone", strconv.Itoa(i), 10, time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.remote.booked("zone"); got != counters {
			t.Errorf("%d counters were booked once all were asked for, want %d", got, counters)
		}
	})
}

// Three instances share a limit while Redis is away. Once it is back, each of them denies
// what all of them let pass, though only one is asked for the key.
func TestShareIsBookedByAll(t *testing.T) {
	defer fallback.Heartbeat(20 * time.Millisecond)()
	server := redistest.Start(t)
	memory := func(limit string) {
		t.Helper()
		if err := server.Client(t).ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var sites [3]*site
	for i := range sites {
		store := redis.New(redis.Options{Addresses: []string{server.Addr}, Timeout: time.Second, Prefix: "all"}).Engine().(fallback.Store)
		sites[i] = &site{Guard: fallback.New(store, fallback.Options{}), share: true}
		sites[i].EnableLocal()
		sites[i].Join()
		t.Cleanup(func() {
			_ = sites[i].Close()
			_ = store.Close()
		})
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if sites[0].Instances() == 3 && sites[1].Instances() == 3 && sites[2].Instances() == 3 {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("never: 3 instances")
		}
	}
	const limit = 30
	var charges []window.Charge
	for _, v := range variants {
		if v.name == "layers" || v.name == "adaptive" { // many slices in an hour
			continue
		}
		c := charge(v.name, "key", limit, time.Hour)
		c.Algorithm = v.algorithm
		charges = append(charges, c)
	}
	memory("1")
	for _, c := range charges {
		var passed int64
		for _, s := range sites {
			passed += s.passed(t, limit, c)
		}
		if passed != limit {
			t.Errorf("%s: %d pass without Redis, want %d", c.Zone, passed, limit)
		}
	}
	memory("0")
	time.Sleep(2 * time.Second) // as documented
	for _, c := range charges {
		if got := sites[0].passed(t, limit, c); got != 0 {
			t.Errorf("%s: %d pass within 2 s after Redis is back, want none", c.Zone, got)
		}
	}
}
