package faults_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
)

const (
	timeout = 100 * time.Millisecond // of the store
	patient = 10 * time.Second       // its timeout where on_error must not decide
	slack   = 50 * time.Millisecond  // how much later than that a request may end
	limit   = 20                     // an hour
	back    = 2 * time.Second        // how soon a server that is there again has to be used

	user, password = "limiter", "s3cret-word"
	// visitor begins every key, for the log to be searched for it.
	visitor = "visitor-"
)

// policies are what on_error may be. Each is a site, and the name of its zone.
var policies = []string{"local", "allow", "deny"}

const (
	// free is the site without limits, to compare with: it shares the machine and
	// whatever else that does.
	free = "free"
	// naps are no site: they last 1 ms, or as long as the tests themselves do not
	// get the machine.
	naps = "naps"
)

// sites are served by one Caddy.
type sites struct {
	*testing.T
	caddy   *caddyrun.Process
	client  *http.Client
	address map[string]string // by policy, and that of free
	store   string            // its name in metrics
}

// startSites serves them on a store at an address, with a timeout and further
// options.
func startSites(t *testing.T, redis string, timeout time.Duration, options ...string) *sites {
	t.Helper()
	s := &sites{T: t, address: map[string]string{free: caddyrun.FreeAddress(t)}, store: "redis " + redis + "/0 sw"}
	var text strings.Builder
	for _, policy := range policies {
		s.address[policy] = caddyrun.FreeAddress(t)
		// Unlike units of zset, which have names, those of slices are counted again
		// if the same request comes twice.
		fmt.Fprintf(&text, `http://%s {
	handle / {
		sliding_window {
			zone %s {
				key {header.X-Key}
				limit %d 1h
				algorithm slices
			}
			on_error %[2]s
		}
		respond ok
	}
}
`, s.address[policy], policy, limit)
	}
	s.caddy = caddyrun.Start(t, fmt.Sprintf(`{
	admin {admin}
	persist_config off
	auto_https off
	sliding_window {
		store redis {
			address %s
			username %s
			password %s
			timeout %s
			%s
		}
	}
}
%shttp://%s {
	respond ok
}
`, redis, user, password, timeout, strings.Join(options, "\n"), text.String(), s.address[free]), slices.Collect(maps.Values(s.address))...)
	s.client = caddyrun.NewClient(t) // closed first: Caddy waits for connections that were never used
	return s
}

// get asks a site.
func (s *sites) get(site, key string) caddyrun.Answer {
	s.Helper()
	return caddyrun.MustGet(s, s.client, s.address[site], visitor+key)
}

// answers are by site.
type answers map[string][]caddyrun.Answer

func (a answers) add(more answers) {
	for site := range more {
		a[site] = append(a[site], more[site]...)
	}
}

// collect runs ask for each of the sites, at the same time, and returns the answers
// that it gives.
func (s *sites) collect(ask func(site string, answered func(caddyrun.Answer, error)), sites ...string) answers {
	s.Helper()
	var mu sync.Mutex
	all := make(answers)
	var group, nap sync.WaitGroup
	for _, site := range sites {
		group.Go(func() {
			ask(site, func(a caddyrun.Answer, err error) {
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				all[site] = append(all[site], a)
			})
		})
	}
	done := make(chan struct{})
	var slept []caddyrun.Answer
	nap.Go(func() {
		for {
			start := time.Now()
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				slept = append(slept, caddyrun.Answer{Sent: start, Gotten: time.Now()})
			}
		}
	})
	group.Wait()
	close(done)
	nap.Wait()
	all[naps] = slept
	return all
}

// visit asks each site in turn, one request after the other, for some time.
func (s *sites) visit(key string, d time.Duration) answers {
	s.Helper()
	end := time.Now().Add(d)
	return s.collect(func(site string, answered func(caddyrun.Answer, error)) {
		for time.Now().Before(end) {
			answered(caddyrun.Get(s.client, s.address[site], visitor+key))
			time.Sleep(5 * time.Millisecond) // a machine at its limits measures itself
		}
	}, slices.Sorted(maps.Keys(s.address))...)
}

// crowd sends n requests at once, each with a key of its own that begins with
// name, and n more to the site without limits.
func (s *sites) crowd(site, name string, n int) answers {
	s.Helper()
	return s.collect(func(site string, answered func(caddyrun.Answer, error)) {
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() { answered(caddyrun.Get(s.client, s.address[site], visitor+name+strconv.Itoa(i))) })
		}
		group.Wait()
	}, site, free)
}

func statuses(answers []caddyrun.Answer) map[int]int {
	n := make(map[int]int)
	for _, a := range answers {
		n[a.Status]++
	}
	return n
}

// quantile returns how long the slowest requests took, but for a share of them.
func quantile(answers []caddyrun.Answer, q float64) time.Duration {
	if len(answers) == 0 {
		return 0
	}
	var took []time.Duration
	for _, a := range answers {
		took = append(took, a.Gotten.Sub(a.Sent))
	}
	slices.Sort(took)
	return took[int(float64(len(took)-1)*q)]
}

func slowest(answers []caddyrun.Answer) time.Duration { return quantile(answers, 1) }

// stalls returns how long nothing happened on the machine at worst.
func (a answers) stalls() time.Duration { return slowest(a[free]) + slowest(a[naps]) }

// orLate continues the cause of an outage: a machine that stalls may be the first to
// let the time of a request run out.
func (a answers) orLate() string {
	if a.stalls() < timeout/4 {
		return ""
	}
	return "|no answer within"
}

// checkSlowest wants no request of a site to take longer than the timeout, but for
// what the machine does. It does so twice: before a request and after it.
func (s *sites) checkSlowest(site string, all answers) {
	s.Helper()
	if most, stalls := slowest(all[site]), all.stalls(); most > timeout+slack+2*stalls {
		s.Errorf("%s: the slowest request took %s, want %s at most, and twice what it takes without limits, %s", site, most, timeout+slack, stalls)
	}
}

// metrics returns all metrics, as text.
func (s *sites) metrics() string {
	s.Helper()
	return caddyrun.Fetch(s.T, s.client, "http://"+s.caddy.Admin+"/metrics")
}

// metric returns the value of a metric of this plugin, 0 without that metric. Labels
// are written as Prometheus does, in the order of their names.
func (s *sites) metric(name, labels string) float64 {
	s.Helper()
	for line := range strings.Lines(s.metrics()) {
		if value, ok := strings.CutPrefix(line, "caddy_sliding_window_"+name+"{"+labels+"} "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// errors returns how many requests the store did not decide on, for a reason.
func (s *sites) errors(reason string) int {
	s.Helper()
	return int(s.metric("store_errors_total", fmt.Sprintf("reason=%q,store=%q", reason, s.store)))
}

// open tells whether the metrics say that the store is not asked.
func (s *sites) open() bool {
	s.Helper()
	return s.metric("breaker_open", fmt.Sprintf("node=\"\",store=%q", s.store)) == 1
}

// logged returns the lines that this plugin wrote.
func (s *sites) logged() []string {
	var lines []string
	for line := range strings.Lines(s.caddy.Log.String()) {
		if strings.Contains(line, `"logger":"http.handlers.sliding_window"`) && !strings.Contains(line, `"level":"info"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// keepsSecrets fails if a password or a key is in the log.
func (s *sites) keepsSecrets() {
	s.Helper()
	for _, secret := range []string{password, visitor} {
		if log := s.caddy.Log.String(); strings.Contains(log, secret) {
			s.Errorf("the log holds %q:\n%s", secret, log)
		}
	}
}
