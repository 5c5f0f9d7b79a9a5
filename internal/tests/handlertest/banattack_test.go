package handlertest

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

// steppedStore is a memory store on a clock that a test sets, by which its bans end.
type steppedStore struct {
	*memory.Store
	now atomic.Int64
}

func (s *steppedStore) Step(now int64) { s.now.Store(now) }
func (s *steppedStore) Time() int64    { return s.now.Load() }

func newSteppedStore(t *testing.T) *steppedStore {
	s := new(steppedStore)
	s.now.Store(1_800_000_000_000)
	s.Store = memory.New(memory.Options{SweepInterval: -1, Now: s.now.Load})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// banned reports whether the answer to a request of a key is that of a ban, and how many seconds it tells to wait.
func banned(t *testing.T, h caddyhttp.MiddlewareHandler, key string) (banned bool, status, retryAfter int) {
	t.Helper()
	w := Serve(t, Get("X-Key", key), h)
	retryAfter, _ = strconv.Atoi(w.Header().Get("Retry-After"))
	return strings.Contains(w.Body.String(), "abnormal-usage-detected"), w.Code, retryAfter
}

// bansBegan returns how many bans of a zone began for a reason.
func bansBegan(t *testing.T, zone, reason string) int {
	t.Helper()
	n, _ := metricstest.Find(t, metricstest.Of(metrics.BansTotal), "caddy_sliding_window_bans_total", "zone", zone, "reason", reason)
	return int(n)
}

// A client that sends 100 requests a second through its bans, and beyond them, is out for exactly as long as it was to be:
// each ban ends on the millisecond, whatever the client does until then. Bans double, up to the longest.
func TestRetryingProlongsNoBan(t *testing.T) {
	store := newSteppedStore(t)
	h, _ := New(t, OfZone(t, ofKey+`"limits":[{"max":5,"window":"10s"}],"ban":{"for":"1m","after":3,"in":"1h","max":"4m"}`, `,"store":`+Give(t, store)))
	now := store.Time
	for i, seconds := range []int64{60, 120, 240, 240} {
		for { // until the ban begins: the limit is used up again and again
			if is, _, _ := banned(t, h, "anna"); is {
				break
			}
			store.Step(now() + 10)
		}
		// The denial of the request before, 10 ms ago, began it.
		end := now() - 10 + seconds*1000
		for ; now() < end; store.Step(min(now()+10, max(end-5, now()+1))) {
			is, status, wait := banned(t, h, "anna")
			if want := int((end - now() + 999) / 1000); !is || status != http.StatusTooManyRequests || wait != want {
				t.Fatalf("ban %d, %d ms before its end: ban %v, status %d, wait %d s, want %d s", i+1, end-now(), is, status, wait, want)
			}
		}
		if is, _, _ := banned(t, h, "anna"); is {
			t.Fatalf("ban %d: the client is out at its end", i+1)
		}
		if is, status, _ := banned(t, h, "bert"); is || status != http.StatusNoContent {
			t.Fatalf("ban %d: another client is out", i+1)
		}
		store.Step(now() + 10)
	}
}

// A ban in shadow, by a zone that marks, or of a key outside of the percentage, denies no request. A ban in
// shadow is not in force when the zone denies, and a ban of a zone that marks is.
func TestBansThatDenyNobody(t *testing.T) {
	const zone = ofKey + `"limits":[{"max":2,"window":"1h"}],"ban":{"for":"1h"}`
	flood := func(t *testing.T, h caddyhttp.MiddlewareHandler, key string) (passed, byBan int) {
		t.Helper()
		for range 20 {
			is, status, _ := banned(t, h, key)
			if status == http.StatusNoContent {
				passed++
			}
			if is {
				byBan++
			}
		}
		return passed, byBan
	}
	for mode, want := range map[string]struct {
		reason  string
		inForce bool
	}{"shadow": {"shadow", false}, "mark": {"denials", true}} {
		t.Run(mode, func(t *testing.T) {
			name := rand.Text()
			config := func(mode string) string {
				return fmt.Sprintf(`{"zones":[{"name":%q,%s,"enforce":%q}]}`, name, zone, mode)
			}
			h, _ := New(t, config(mode))
			if passed, byBan := flood(t, h, "anna"); passed != 20 || byBan > 0 {
				t.Errorf("%d of 20 passed, and a ban denied %d", passed, byBan)
			}
			Poll(t, "a ban begins", func() bool { return bansBegan(t, name, want.reason) == 1 })
			if passed, _ := flood(t, h, "anna"); passed != 20 {
				t.Errorf("%d of 20 passed during the ban", passed)
			}
			on, _ := New(t, config("on"))
			if is, _, _ := banned(t, on, "anna"); is != want.inForce {
				t.Errorf("as the zone denies: ban %v, want %v", is, want.inForce)
			}
			if passed, _ := flood(t, h, "anna"); passed != 20 {
				t.Errorf("%d of 20 passed while another configuration denies", passed)
			}
		})
	}
	t.Run("percent", func(t *testing.T) {
		name, in := rand.Text(), 0
		h, _ := New(t, fmt.Sprintf(`{"zones":[{"name":%q,%s,"enforce":"30%%"}]}`, name, zone))
		for i := range 100 {
			key := strconv.Itoa(i)
			passed, byBan := flood(t, h, key)
			if enforce.IsEnforced(name, key, 30) {
				if in++; passed != 2 || byBan != 17 {
					t.Errorf("%s: %d passed, and the ban denied %d, want 2 and 17", key, passed, byBan)
				}
			} else if passed != 20 {
				t.Errorf("%s, which is not in: %d of 20 passed", key, passed)
			}
		}
		Poll(t, "bans in shadow begin", func() bool { return bansBegan(t, name, "shadow") == 100-in })
		if n := bansBegan(t, name, "denials"); in == 0 || n != in {
			t.Errorf("%d bans of %d keys that are in", n, in)
		}
	})
}
