package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// Two Caddys share a Redis. The shadow zone counts for both, in Redis, metrics and the access log,
// and a percentage has the same clients in on both.
func TestShadowOverHTTP(t *testing.T) {
	server := redistest.Start(t)
	client := caddyrun.NewClient(t)
	var caddys [2]*caddyrun.Process
	decided := func(p *caddyrun.Process, outcome string) int {
		const name = `caddy_sliding_window_decisions_total{outcome="%s",zone="candidate"} `
		_, rest, found := strings.Cut(caddyrun.Fetch(t, client, "http://"+p.Admin+"/metrics"), fmt.Sprintf(name, outcome))
		number, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(number)
		if !found || err != nil {
			t.Errorf("no metric of %s: %q", outcome, number)
		}
		return n
	}
	// The back end answers when the shadow zone has decided, so that the log has it.
	var sent [2]int
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.Header.Get("X-Caddy"))
		caddyrun.Eventually(t, 20*time.Second, "the shadow zone has decided", func() bool {
			return decided(caddys[i], "shadow_allowed")+decided(caddys[i], "shadow_denied") == sent[i]
		})
	}))
	t.Cleanup(backend.Close)
	var addresses [2]string
	for i := range caddys {
		addresses[i] = caddyrun.FreeAddress(t)
		caddys[i] = caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	sliding_window {
		store redis {
			address %s
			timeout 5s
		}
	}
}
http://%s {
	log
	respond /healthz ok
	handle /half {
		sliding_window {
			zone half {
				key {header.X-Key}
				limit 0 1h
				enforce 50%%
			}
		}
		respond ok
	}
	handle / {
		log_append candidate_allowed {http.sliding_window.candidate.allowed}
		log_append candidate_enforced {http.sliding_window.candidate.enforced}
		sliding_window {
			zone site {
				key all
				limit 25 1h
			}
			zone candidate {
				key {header.X-Key}
				limit 5 1h
				algorithm log
				enforce shadow
			}
		}
		reverse_proxy %s {
			header_up X-Caddy %d
		}
	}
}
`, server.Addr, addresses[i], strings.TrimPrefix(backend.URL, "http://"), i), addresses[i])
	}
	for n := range 30 {
		i := n % 2
		if n < 25 {
			sent[i]++
		}
		a := caddyrun.MustGet(t, client, addresses[i], "k")
		want := http.StatusOK
		if n >= 25 {
			want = http.StatusTooManyRequests
		}
		if a.Status != want || a.Header.Get("RateLimit-Policy") != `"site";q=25;w=3600` {
			t.Errorf("request %d: got %d %v, want %d", n+1, a.Status, a.Header, want)
		}
	}
	if allowed, denied := decided(caddys[0], "shadow_allowed")+decided(caddys[1], "shadow_allowed"),
		decided(caddys[0], "shadow_denied")+decided(caddys[1], "shadow_denied"); allowed != 5 || denied != 20 {
		t.Errorf("in shadow %d pass and %d do not, want 5 and 20", allowed, denied)
	}
	lines := map[string]int{`"candidate_allowed":true`: 5, `"candidate_allowed":false`: 20, `"candidate_enforced":false`: 25}
	caddyrun.Eventually(t, 20*time.Second, "the access log is written", func() bool {
		for line, n := range lines {
			if strings.Count(caddys[0].Log.String()+caddys[1].Log.String(), line) != n {
				return false
			}
		}
		return true
	})
	if keys := server.Client(t).Keys(t.Context(), "sw:2-log:candidate:*").Val(); len(keys) != 1 {
		t.Errorf("Redis has the keys %q of the shadow zone, want one", keys)
	}
	in := 0
	for k := range 100 {
		var status [2]int
		for i := range caddys {
			req, err := http.NewRequest(http.MethodGet, "http://"+addresses[i]+"/half", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Key", strconv.Itoa(k))
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			status[i] = resp.StatusCode
		}
		if status[0] != status[1] {
			t.Errorf("key %d: the Caddys answer %v", k, status)
		}
		if status[0] == http.StatusTooManyRequests {
			in++
		}
	}
	if in < 30 || in > 70 {
		t.Errorf("%d of 100 keys are denied, want about 50", in)
	}
}

// shadowOutcomes returns what a zone of the running Caddy would have decided: allowed, denied,
// failed_open, failed_closed and dropped.
func shadowOutcomes(t *testing.T, zone string) (n [5]float64) {
	t.Helper()
	ctx := caddy.ActiveContext()
	for i, outcome := range []string{"shadow_allowed", "shadow_denied", "shadow_failed_open", "shadow_failed_closed", "shadow_dropped"} {
		n[i], _ = metricstest.Find(t, ctx.GetMetricsRegistry(), "caddy_sliding_window_decisions_total", "zone", zone, "outcome", outcome)
	}
	return n
}
