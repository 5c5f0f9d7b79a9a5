package handlertest

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap/zapcore"

	"github.com/slidingwindow/caddy-sliding-window/internal/enforce"
)

// banning is a handler on such a store.
type banning struct {
	testing.TB
	caddyhttp.MiddlewareHandler
	ctx   caddy.Context
	clock *setClock
	zone  string // a name that no other run has: metrics go on
}

// startBanning starts a handler with zones, and more options, in JSON. NAME is b.zone.
func startBanning(t *testing.T, zones, more string) *banning {
	t.Helper()
	b := &banning{TB: t, zone: rand.Text()}
	var store string
	b.clock, store = newSetClock(t)
	b.MiddlewareHandler, b.ctx = New(t, strings.ReplaceAll(fmt.Sprintf(`{"zones":[%s],"store":%s%s}`, zones, store, more), "NAME", b.zone))
	Start(t, b.ctx)
	return b
}

// after lets time pass.
func (b *banning) after(d time.Duration) { b.clock.now += d.Milliseconds() }

// ask makes a request with a key, and wants a status. Its answer has the status in X-Status, or else 204.
func (b *banning) ask(key string, want int, header ...string) (*httptest.ResponseRecorder, *http.Request) {
	b.Helper()
	r, w := Get(append(header, "X-Key", key)...), httptest.NewRecorder()
	if strings.Contains(key, ".") {
		r.RemoteAddr = key + ":1"
	}
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	err := b.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		status := http.StatusNoContent
		_, _ = fmt.Sscan(r.Header.Get("X-Status"), &status)
		w.WriteHeader(status)
		return nil
	}))
	if err != nil {
		b.Fatal(err)
	}
	if w.Code != want {
		b.Fatalf("request of %q: got %d, want %d\n%s", key, w.Code, want, w.Body)
	}
	return w, r
}

const keyed = `"key":"{http.request.header.X-Key}",`

// A key that a limit denies is banned: it gets problem details and an exact Retry-After, nothing that it does prolongs the ban,
// which ends on the millisecond, and the next one is longer.
func TestBan(t *testing.T) {
	b := startBanning(t, `{"name":"NAME",`+keyed+`"limits":[{"max":2,"window":"1s"}],"ban":{"for":"10m"}}`, `,"jitter":1`)
	for length := 10 * time.Minute; length <= 40*time.Minute; length *= 2 {
		b.ask("a", 204)
		b.ask("a", 204)
		w, _ := b.ask("a", 429) // by the limit
		if !strings.Contains(w.Body.String(), "quota-exceeded") {
			t.Errorf("the denial that leads to a ban says %s", w.Body)
		}
		for at := time.Duration(0); at < length; at += 9999 * time.Millisecond {
			w, r := b.ask("a", 429)
			left := (length - at + time.Second - 1) / time.Second
			if got, want := w.Header().Get("Retry-After"), fmt.Sprint(int64(left)); got != want {
				t.Fatalf("after %s of %s: Retry-After is %s, want %s", at, length, got, want)
			}
			if !strings.Contains(w.Body.String(), `#abnormal-usage-detected"`) || w.Header().Get("RateLimit") != "" {
				t.Fatalf("got %v\n%s", w.Header(), w.Body)
			}
			zone := "{http.sliding_window." + b.zone
			if got, want := Expand(r, zone+".allowed} "+zone+".source} "+zone+".retry_after} {http.sliding_window.retry_after} "+zone+".limit}"), fmt.Sprintf("false ban %d %[1]d ", left); got != want {
				t.Fatalf("placeholders are %q, want %q", got, want)
			}
			b.after(min(9999*time.Millisecond, length-at-1*time.Millisecond))
			b.ask("b", 204)
		}
		b.ask("a", 429) // one millisecond is left
		b.after(time.Millisecond)
	}
	b.ask("a", 204)
	if banned, denied := Metric(t, b.ctx, "caddy_sliding_window_banned_requests_total", "zone", b.zone), Metric(t, b.ctx, "caddy_sliding_window_decisions_total", "zone", b.zone, "outcome", "denied"); banned < 100 || denied != banned+3 {
		t.Errorf("%v banned requests, and %v denied ones", banned, denied)
	}
}

// What a ban says is chosen: its status, and whether clients hear of it. Requests that except matches are not denied by it, and do
// not lead to one. Zones beside it are not charged for what it denies.
func TestBanOptions(t *testing.T) {
	b := startBanning(t, `
		{"name":"NAME",`+keyed+`"limits":[{"max":2,"window":"1s"}],"top_talkers":true,"ban":{"for":"10m","status":403,"silent":true,"except":[{"header":{"X-Monitor":["*"]}}]}},
		{"name":"NAME_beside","key":"all","limits":[{"max":5,"window":"1h"}]}`, `,"status":420`)
	b.ask("a", 204, "X-Monitor", "1")
	b.ask("a", 204)
	b.ask("a", 420, "X-Monitor", "1")
	b.after(time.Second)
	b.ask("a", 204)
	b.ask("a", 204)
	b.ask("a", 420)
	for range 20 {
		w, _ := b.ask("a", 403)
		if w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(), "abnormal") || strings.Contains(w.Body.String(), b.zone) || !strings.Contains(w.Body.String(), `"about:blank"`) {
			t.Fatalf("got %v\n%s", w.Header(), w.Body)
		}
		b.after(time.Second)
	}
	b.ask("a", 204, "X-Monitor", "1") // the fifth of the zone beside it
	b.ask("b", 420)
	if got := Admin(t, http.MethodPost, "top", `{"zone":"`+b.zone+`"}`); !strings.Contains(got, `"key":"a"`) {
		t.Errorf("top talkers are %s", got)
	}
}

// after denials in a time lead to a ban, one in a second counts, and old ones do not.
func TestBanAfter(t *testing.T) {
	b := startBanning(t, `{"name":"NAME",`+keyed+`"limits":[{"max":0,"window":"1s"}],"ban":{"for":"10m","after":3,"in":"1m","status":403}}`, "")
	for range 50 {
		b.ask("a", 429) // in one second
	}
	b.after(2 * time.Second)
	b.ask("a", 429)
	b.after(58 * time.Second) // the first is old now
	b.ask("a", 429)
	b.after(time.Second)
	b.ask("a", 429)
	b.ask("a", 403)
}

// No key is banned for a denial that is not its own: by another zone, by its network, for want of a key, by an override, by the load,
// or while other requests of the key hold units that may come back.
func TestBanIsFair(t *testing.T) {
	const ban = `"ban":{"for":"1h","status":403}`
	t.Run("zone", func(t *testing.T) {
		b := startBanning(t, `{"name":"NAME",`+keyed+`"limits":[{"max":9,"window":"1h"}],`+ban+`},{"name":"NAME_all","key":"all","limits":[{"max":1,"window":"1s"}]}`, "")
		b.ask("a", 204)
		b.ask("a", 429)
		b.ask("a", 429)
		b.after(time.Second)
		b.ask("a", 204)
	})
	t.Run("network", func(t *testing.T) {
		b := startBanning(t, `{"name":"NAME","limits":[{"max":9,"window":"1h"},{"max":1,"window":"1s","tier":"24/48"}],`+ban+`}`, "")
		b.ask("192.0.2.1", 204)
		b.ask("192.0.2.2", 429)
		b.ask("192.0.2.2", 429)
		b.after(time.Second)
		b.ask("192.0.2.2", 204)
		if n := bansBegan(t, b.zone, "denials"); n != 0 {
			t.Errorf("%d bans began", n)
		}
	})
	t.Run("no key", func(t *testing.T) {
		b := startBanning(t, `{"name":"NAME",`+keyed+`"limits":[{"max":1,"window":"1s"}],`+ban+`}`, "")
		b.ask("", 204)
		b.ask("", 429)
		b.ask("", 429)
	})
	t.Run("override", func(t *testing.T) {
		b := startBanning(t, `{"name":"NAME",`+keyed+`"limits":[{"max":1,"window":"1s"}],`+ban+`}`, "")
		order := func(what string) {
			if answer := Admin(t, http.MethodPost, "overrides/set", `{"zone":"`+b.zone+`","key":"a",`+what+`}`); !strings.Contains(answer, `"version"`) {
				t.Fatal(answer)
			}
		}
		order(`"deny":true`)
		b.ask("a", 429)
		b.ask("a", 429)
		order(`"exempt":true`)
		b.ask("a", 204)
		order(`"factor":2`)
		b.ask("a", 204)
		b.ask("a", 204)
		b.ask("a", 429)
		b.ask("a", 403)
		order(`"exempt":true`)
		b.ask("a", 204)
	})
	t.Run("reservation", func(t *testing.T) {
		b := startBanning(t, `{"name":"NAME",`+keyed+`"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[401]},`+ban+`}`, "")
		w := httptest.NewRecorder()
		r := caddyhttp.PrepareRequest(Get("X-Key", "a"), caddy.NewReplacer(), w, &caddyhttp.Server{})
		_ = b.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
			b.ask("a", 429) // the unit is held
			b.after(2 * time.Second)
			b.ask("a", 429)
			return nil
		}))
		b.ask("a", 204) // it came back
		b.ask("a", 401, "X-Status", "401")
		b.ask("a", 429)
		b.ask("a", 403)
	})
}

// In shadow, what would be banned is counted: no request is denied, and no key is banned when the zone comes to deny. A zone that marks
// requests says false of them.
func TestBanWithoutDenials(t *testing.T) {
	zone := `{"name":"NAME",` + keyed + `"limits":[{"max":1,"window":"1s"}],"ban":{"for":"1m"},"enforce":"%s"}`
	t.Run("shadow", func(t *testing.T) {
		b := startBanning(t, fmt.Sprintf(zone, "shadow"), "")
		for range 20 {
			b.ask("a", 204)
			b.after(time.Second)
		}
		wantShadow(t, b.ctx, b.zone, [5]float64{20})
		b.ask("a", 204)
		b.ask("a", 204) // leads to a ban
		for range 20 {
			b.after(time.Second)
			b.ask("a", 204)
		}
		wantShadow(t, b.ctx, b.zone, [5]float64{21, 21})
		if n := Metric(t, b.ctx, "caddy_sliding_window_bans_total", "zone", b.zone, "reason", "shadow"); n != 1 {
			t.Errorf("%v bans in shadow", n)
		}
		if answer := Admin(t, http.MethodPost, "enforce", `{"zone":"`+b.zone+`","mode":"on","ttl":"1h"}`); !strings.Contains(answer, `"on"`) {
			t.Fatal(answer)
		}
		b.ask("a", 204)
	})
	t.Run("mark", func(t *testing.T) {
		b := startBanning(t, fmt.Sprintf(zone, "mark"), "")
		b.ask("a", 204)
		b.ask("a", 204)
		b.after(10 * time.Second)
		_, r := b.ask("a", 204)
		if got := Expand(r, strings.ReplaceAll("{Z.allowed} {Z.source} {Z.retry_after}", "Z", "http.sliding_window."+b.zone)); got != "false ban 50" {
			t.Errorf("the mark of a banned key is %q", got)
		}
		b.after(50 * time.Second)
		if _, r = b.ask("a", 204); Expand(r, "{http.sliding_window."+b.zone+".allowed}") != "true" {
			t.Error("the ban does not end")
		}
	})
}

// A ban is told once, with the key only where logs may have it. Operators see it.
func TestBanIsTold(t *testing.T) {
	for _, logs := range []bool{true, false} {
		name := rand.Text()
		h, ctx, log := NewObservedByDefault(t, zapcore.InfoLevel, fmt.Sprintf(`{"zones":[{"name":%q,%s"limits":[{"max":0,"window":"1s"}],"ban":{"for":"1m"}}],"log_key":%t}`, name, keyed, logs))
		Start(t, ctx)
		for range 9 {
			Serve(t, Get("X-Key", "anna"), h)
		}
		lines := log.FilterMessage("a key was banned").All()
		if len(lines) != 1 || (lines[0].ContextMap()["key"] == "anna") != logs {
			t.Errorf("log_key %t: the log has %v", logs, lines)
		}
		answer := Admin(t, http.MethodPost, "inspect", fmt.Sprintf(`{"zone":%q,"key":"anna"}`, name))
		if !strings.Contains(answer, `"ban":{"until":`) || !strings.Contains(answer, `"would_pass":false`) || !strings.Contains(answer, `"decided_by":"ban"`) {
			t.Errorf("inspect says %s", answer)
		}
	}
}

// A ban goes with all that a zone can have, in both stores.
func TestBanWithOptions(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		for _, zone := range []string{
			`"limits":[{"max":1,"window":"1h"}],"algorithm":{"name":"log"}`,
			`"limits":[{"max":1,"window":"1h"},{"max":5,"window":"1d"}],"fold_case":true`,
			`"limits":[{"max":1,"window":"1h"}],"algorithm":{"name":"slices","count":3},"pack":1000`,
			`"limits":[{"max":1,"window":"1h"}],"algorithm":{"name":"gcra","native":"auto"}`,
			`"limits":[{"max":1,"window":"1h"}],"algorithm":{"name":"stream","fields":[{"name":"a","value":"b"}]}`,
			`"limits":[{"max":20,"window":"1h"}],"lease":{"units":10},"cost":5`,
			`"limits":[{"max":"{http.request.header.X-Most}","window":"1h"}],"fallback":{"max":1,"window":"1h"}`,
			`"limits":[{"max":1,"window":"1s"}],"load":{"memory":{"lo":"98%","hi":"99%"}}`,
			`"limits":[{"max":1,"window":"1h"}],"count_if":{"status_code":[2]}`,
			`"limits":[{"max":1,"window":"1h"}],"settle":{"header":"X-Units"}`,
			`"limits":[{"max":1,"window":"1h"}],"enforce":"99%"`,
			`"limits":[{"max":1,"window":"1h"}]},{"name":"NAME_beside","limits":[{"max":1000000,"window":"1h"}]`,
		} {
			name := rand.Text()
			for !enforce.IsEnforced(name, "anna", 99) {
				name = rand.Text()
			}
			h, ctx := New(t, strings.ReplaceAll(`{"zones":[{"name":"NAME",`+keyed+`"ban":{"for":"1h","status":403},`+zone+`}],`+store+`}`, "NAME", name))
			Start(t, ctx)
			Poll(t, "the key is banned with "+zone, func() bool { return Serve(t, Get("X-Key", "anna"), h).Code == http.StatusForbidden })
			if w := Serve(t, Get("X-Key", "bob"), h); w.Code != http.StatusNoContent {
				t.Errorf("%s: another key gets %d", zone, w.Code)
			}
		}
	})
}

// The load of a Caddy, and its share of the limit while the store is away, have no key banned.
func TestBanIsOfTheKey(t *testing.T) {
	for _, enforced := range []string{"on", "shadow"} {
		p, name := newPressure(t), rand.Text()
		h, ctx := p.loaded(t, fmt.Sprintf(`{"zones":[{"name":%q,"limits":[{"max":100,"window":"1m"}],%s,"ban":{"for":"1h","status":403},"enforce":%q}]}`, name, cpuLoad, enforced))
		reason := map[string]string{"on": "denials", "shadow": "shadow"}[enforced]
		p.at(1, 3)
		ask := func(n int) (last int) {
			for range n {
				last = Serve(t, Get(), h).Code
			}
			return last
		}
		ask(50)
		if enforced == "shadow" {
			Poll(t, "the load denies", func() bool { return shadowOutcomes(t, ctx, name)[1] == 20 })
		}
		if n := bansBegan(t, name, reason); n != 0 {
			t.Errorf("%s: the load leads to %d bans", enforced, n)
		}
		p.at(0, 120)
		ask(150)
		Poll(t, "a ban begins", func() bool { return bansBegan(t, name, reason) == 1 })
	}
	f, store := NewFake(t, Away)
	h, ctx := New(t, OfZone(t, `"limits":[{"max":3,"window":"1h"}],"ban":{"for":"1h","status":403}`, share+store))
	Start(t, ctx)
	Poll(t, "three instances", func() bool {
		n, _ := f.Registered()
		return n == 1 && strings.Contains(Admin(t, http.MethodGet, "status", ""), `"instances":3`)
	})
	for i, want := range []int{204, 429, 429, 429} {
		if w := Serve(t, Get(), h); w.Code != want {
			t.Errorf("request %d: got %d, want %d", i+1, w.Code, want)
		}
	}
}
