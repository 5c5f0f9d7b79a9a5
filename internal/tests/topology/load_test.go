package topology_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

const (
	// patience is how long what has to happen may take on a busy machine.
	patience = 30 * time.Second
	// back is how soon a new master has to be used.
	back = 2 * time.Second
	// timeout is that of a store that may fail. A call notices after it that a node hangs,
	// and who then asks which node holds what may wait as long for the same one.
	timeout = 500 * time.Millisecond
	// username and password are those of the store at the servers.
	username, password = "limiter", "secret"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(quiet{})
	os.Exit(caddyrun.Main(m, func() {
		// A client that is closed looks for a server that is gone for a second more.
		for start := time.Now(); goleak.Find() != nil && time.Since(start) < patience; {
		}
	}))
}

// quiet keeps go-redis from logging every server that a test kills.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// allow lets the store's user do what it has to on a server, and no more.
func allow(t *testing.T, s *redistest.Server, prefix string, further ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", username, "reset", "on", ">" + password, "~" + prefix + ":*"}
	for _, p := range append(further, strings.Fields(redis.Permissions)...) {
		args = append(args, p)
	}
	if err := s.Client(t).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// newStore returns a store with its own timeout.
func newStore(t *testing.T, o redis.Options, timeout time.Duration) *redis.Store {
	o.Timeout = timeout
	s := redis.New(o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// load is requests from many goroutines, all of whose answers are seen. Some spend on
// a few hot counters, others on one that no other caller uses, to tell how often each was
// charged, and others on both.
type load struct {
	*testing.T
	store *redis.Store
	hot   []window.Charge

	admitted []atomic.Int64 // of each hot counter, so far
	most     atomic.Int64   // a hot counter that has admitted this number is left alone
	stop     chan struct{}
	once     sync.Once // closes stop
	group    sync.WaitGroup
	mu       sync.Mutex // guards asked
	asked    []asked
}

// asked is a request and its answer.
type asked struct {
	hot       int    // which of the counters; -1 for none
	once      string // the key of the counter of its own; empty for none
	sent, got time.Time
	at        int64 // when the server decided, in Unix milliseconds
	allowed   bool
	err       error
}

const (
	callers = 8
	// pause is how long a caller rests between two requests.
	pause = 2 * time.Millisecond
)

// startLoad begins to ask, until each hot counter has admitted about `most` units.
func startLoad(t *testing.T, store *redis.Store, hot []window.Charge, most int64) *load {
	l := &load{T: t, store: store, hot: hot, admitted: make([]atomic.Int64, len(hot)), stop: make(chan struct{})}
	l.most.Store(most)
	t.Cleanup(l.halt) // before the store ends
	for caller := range callers {
		l.group.Go(func() {
			var own []asked
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					l.mu.Lock()
					l.asked = append(l.asked, own...)
					l.mu.Unlock()
					return
				case <-time.After(pause):
				}
				own = append(own, l.ask(caller, n))
			}
		})
	}
	return l
}

func (l *load) ask(caller, n int) asked {
	a := asked{hot: -1}
	var charges []window.Charge
	if hot := (n/3 + caller) % len(l.hot); n%3 != 0 && l.admitted[hot].Load() < l.most.Load() {
		a.hot = hot
		charges = append(charges, l.hot[hot])
	}
	if n%3 != 1 || a.hot < 0 {
		a.once = strconv.Itoa(caller) + "-" + strconv.Itoa(n)
		charges = append(charges, once(a.once))
	}
	a.sent = time.Now()
	var ds []window.Decision
	ds, a.err = l.store.Take(l.Context(), charges)
	a.got = time.Now()
	a.allowed = a.err == nil && window.Allowed(ds)
	if a.err == nil {
		a.at = ds[0].At
	}
	if a.hot >= 0 && a.allowed {
		l.admitted[a.hot].Add(1)
	}
	return a
}

// once is a charge on a counter of a request's own. Slices count one that comes twice
// as two, as units without names.
func once(key string) window.Charge {
	return window.Charge{
		Zone: "once", Key: key, Cost: 1, Algorithm: window.Slices{},
		Policies: []window.Policy{{Limit: 100, Window: time.Hour}},
	}
}

// hotCharges are charges of 1 on n counters.
func hotCharges(n int, limit int64, length time.Duration, algorithms ...window.Algorithm) []window.Charge {
	charges := make([]window.Charge, n)
	for i := range charges {
		charges[i] = window.Charge{
			Zone: "hot", Key: strconv.Itoa(i), Cost: 1, Algorithm: algorithms[i%len(algorithms)],
			Policies: []window.Policy{{Limit: limit, Window: length}},
		}
	}
	return charges
}

// goOn asks on, whatever the hot counters have admitted.
func (l *load) goOn() { l.most.Store(math.MaxInt64) }

// halt stops to ask. It may be called more than once.
func (l *load) halt() {
	l.once.Do(func() { close(l.stop) })
	l.group.Wait()
}

// end stops to ask, and returns what was asked in the order of the answers.
func (l *load) end() []asked {
	l.halt()
	slices.SortFunc(l.asked, func(a, b asked) int { return a.got.Compare(b.got) })
	return l.asked
}

// least returns how many each hot counter has admitted at least.
func (l *load) least() int64 {
	least := l.admitted[0].Load()
	for i := range l.admitted {
		least = min(least, l.admitted[i].Load())
	}
	return least
}

// eventually waits until ok.
func (l *load) eventually(what string, ok func() bool) {
	l.Helper()
	eventually(l.T, what, ok)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// charges returns how often each counter of its own was charged.
func charges(t *testing.T, store *redis.Store, all []asked) map[string]int64 {
	t.Helper()
	n := make(map[string]int64)
	var keys []string
	for _, a := range all {
		if a.once != "" {
			keys = append(keys, a.once)
		}
	}
	for some := range slices.Chunk(keys, 100) {
		var looks []window.Charge
		for _, key := range some {
			looks = append(looks, once(key))
		}
		ds, err := store.Peek(t.Context(), looks)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range some {
			n[key] = ds[i].Limit - ds[i].Remaining
		}
	}
	return n
}

// outage tells when the first and the last request were made that failed.
func outage(all []asked) (first, last time.Time, failed int) {
	for _, a := range all {
		if a.err == nil {
			continue
		}
		if failed++; failed == 1 || a.sent.Before(first) {
			first = a.sent
		}
		if a.sent.After(last) {
			last = a.sent
		}
	}
	return first, last, failed
}

// errorTexts tells what errors there were, and how many of each.
func errorTexts(all []asked) string {
	count := make(map[string]int)
	for _, a := range all {
		if a.err != nil {
			text := a.err.Error()
			count[text[max(0, len(text)-90):]]++
		}
	}
	texts := make([]string, 0, len(count))
	for text := range count {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return cmp.Compare(count[b], count[a]) })
	out := ""
	for _, text := range texts[:min(len(texts), 12)] {
		out += fmt.Sprintf("\n%6d … %s", count[text], text)
	}
	return out
}

// slowest is the longest that an answer took.
func slowest(all []asked) (longest time.Duration) {
	for _, a := range all {
		longest = max(longest, a.got.Sub(a.sent))
	}
	return longest
}
