package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/traffic"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// outage is a fault in which the store decides on nothing.
type outage struct {
	name       string
	begin, end func(t *testing.T, r *remote)
	cause      string // a regular expression that a line of the log must match
	proxied    bool   // whether the network fails, and not the server
	absent     bool   // whether it begins before Caddy does
	forgets    bool   // whether the counts are gone afterwards
	// Connections that Redis may see in it; 0 for any number.
	connections int64
}

// outages. The numbers are those of docs/reliability.md.
var outages = []outage{
	{
		name: "1 down at start", absent: true, forgets: true, cause: "connection refused",
		begin: kill, end: restart,
	},
	{
		name: "2 killed", forgets: true, cause: "connection refused|EOF|reset by peer|broken pipe",
		begin: kill, end: restart,
	},
	{
		name: "3 hung", cause: "no answer within 100ms",
		begin: func(_ *testing.T, r *remote) { r.server.Stop() },
		end:   func(_ *testing.T, r *remote) { r.server.Cont() },
	},
	{
		name: "4 slow", proxied: true, cause: "no answer within 100ms",
		begin: toxic(`{"name":"slow","type":"latency","attributes":{"latency":400}}`), end: heal,
	},
	{
		name: "4 silent network", proxied: true, cause: "no answer within 100ms",
		begin: toxic(`{"name":"silent","type":"timeout","attributes":{"timeout":0}}`), end: heal,
	},
	{
		name: "5 reset instead of a reply", proxied: true, cause: "reset by peer|EOF",
		begin: toxic(`{"name":"reset","type":"reset_peer","attributes":{"timeout":0}}`), end: heal,
	},
	{
		name: "5 truncated reply", proxied: true, cause: "reset by peer|EOF",
		begin: toxic(`{"name":"cut","type":"limit_data","attributes":{"bytes":7}}`), end: heal,
	},
	{
		name: "8 a replica", cause: "READONLY",
		begin: command("REPLICAOF", "127.0.0.1", "1"), end: command("REPLICAOF", "NO", "ONE"),
	},
	{
		name: "10 out of memory", cause: "OOM",
		begin: command("CONFIG", "SET", "maxmemory", "1"), end: command("CONFIG", "SET", "maxmemory", "0"),
	},
	{
		name: "12 no permission", cause: `the user lacks a permission; all it needs are .*\+evalsha.*NOPERM`, connections: 60,
		begin: command("ACL", "SETUSER", user, "-evalsha"), end: command("ACL", "SETUSER", user, "+evalsha"),
	},
	{
		name: "12 one permission missing", cause: `the user lacks a permission; all it needs are .*\+hset`, connections: 60,
		begin: command("ACL", "SETUSER", user, "-hset"), end: command("ACL", "SETUSER", user, "+hset"),
	},
	{
		name: "12 wrong password", cause: "WRONGPASS", connections: 60,
		begin: func(t *testing.T, r *remote) {
			r.do(t, "ACL", "SETUSER", user, "resetpass", ">other")
			r.do(t, "CLIENT", "KILL", "USER", user)
		},
		end: command("ACL", "SETUSER", user, "resetpass", ">"+password),
	},
	{
		name: "26 script of another tenant", cause: "BUSY|no answer within 100ms",
		begin: func(t *testing.T, r *remote) {
			r.do(t, "CONFIG", "SET", "busy-reply-threshold", "20")
			go r.tenant.Eval(context.Background(), "while true do end", nil)
			caddyrun.Eventually(t, 10*time.Second, "the server is busy", func() bool {
				err := r.admin.Ping(t.Context()).Err()
				return err != nil && strings.HasPrefix(err.Error(), "BUSY ")
			})
		},
		end: command("SCRIPT", "KILL"),
	},
}

func kill(_ *testing.T, r *remote) { r.server.Kill() }

func restart(t *testing.T, r *remote) { r.server.Restart(t) }

func toxic(json string) func(*testing.T, *remote) {
	return func(t *testing.T, r *remote) { r.network.fail(t, json) }
}

func heal(_ *testing.T, r *remote) { r.network.heal() }

func command(args ...any) func(*testing.T, *remote) {
	return func(t *testing.T, r *remote) { r.do(t, args...) }
}

// remote is a server, and what lies between it and Caddy.
type remote struct {
	server        *redistest.Server
	network       network
	admin, tenant *goredis.Client
}

func startRemote(t *testing.T) *remote {
	args := append([]string{"--user", user, "on", ">" + password, "~sw:*"}, strings.Fields(redis.Permissions)...)
	server := redistest.Start(t, args...)
	return &remote{server: server, network: startNetwork(t, "127.0.0.1:0", server.Addr), admin: server.Client(t), tenant: server.Client(t)}
}

func (r *remote) do(t *testing.T, args ...any) {
	t.Helper()
	if err := r.admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// connections returns how many the server has accepted since it began.
func (r *remote) connections(t *testing.T) int64 {
	t.Helper()
	n, err := strconv.ParseInt(r.admin.InfoMap(t.Context(), "stats").Item("Stats", "total_connections_received"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// charged returns what has been spent on a key of a zone.
func (r *remote) charged(t *testing.T, zone, key string) int64 {
	t.Helper()
	s := redis.New(redis.Options{Addresses: []string{r.server.Addr}, Timeout: 10 * time.Second})
	defer func() { _ = s.Close() }()
	ds, err := s.Peek(t.Context(), []window.Charge{{
		Zone: zone, Key: visitor + key, Cost: 0, Algorithm: window.Slices{},
		Policies: []window.Policy{{Limit: limit, Window: time.Hour}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0].Limit - ds[0].Remaining
}

// TestOutages lets the store fail in every way in which it decides on nothing, under
// traffic, and come back.
func TestOutages(t *testing.T) {
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			r := startRemote(t)
			if o.absent {
				o.begin(t, r)
			}
			address := r.server.Addr
			if o.proxied {
				address = r.network.Listen
			}
			s := startSites(t, address, timeout)
			var passed []caddyrun.Answer
			if !o.absent {
				passed = s.before()
				o.begin(t, r)
			}
			counted := s.counted()
			connections := int64(0)
			if o.connections > 0 {
				connections = r.connections(t)
			}

			during := s.crowd("deny", "once-", 30)
			during.add(s.visit("during", 500*time.Millisecond))
			caddyrun.Eventually(t, back, "breaker_open is 1", s.open)
			during.add(s.checkLatency())
			s.checkDuring(during, counted)
			if o.connections > 0 {
				if n := r.connections(t) - connections; n > o.connections {
					t.Errorf("%d connections during the fault, want %d at most", n, o.connections)
				}
			}

			o.end(t, r)
			ended := time.Now()
			caddyrun.Eventually(t, back, "the store decides again", func() bool {
				return s.get("deny", "probe").Status == http.StatusOK
			})
			t.Logf("back after %s", time.Since(ended).Round(time.Millisecond))
			s.checkAfter(r, o, passed)
			s.checkLog(o.cause + during.orLate())
		})
	}
}

// before fills one counter of each site and half of another, and returns what
// passed of the latter.
func (s *sites) before() []caddyrun.Answer {
	s.Helper()
	for _, policy := range policies {
		asked := 0
		for s.get(policy, "full").Status != http.StatusTooManyRequests {
			if asked++; asked > 2*limit { // one or the other may have come too late for Redis
				s.Fatalf("%s: %d requests before the fault, and none was denied\n%s", policy, asked, s.caddy.Log)
			}
		}
	}
	var passed []caddyrun.Answer
	for len(passed) < limit/2 {
		if a := s.get("deny", "half"); a.Status == http.StatusOK {
			passed = append(passed, a)
		}
	}
	return passed
}

func (s *sites) counted() (n counts) {
	s.Helper()
	n.undecided = s.errors("away") + s.errors("refused")
	n.open = int(s.metric("decisions_total", `outcome="failed_open",zone="allow"`))
	n.closed = int(s.metric("decisions_total", `outcome="failed_closed",zone="deny"`))
	return n
}

// checkLatency compares the sites with the one without limits, once the store is
// not asked any more. It measures again if the machine had something else to do.
func (s *sites) checkLatency() answers {
	s.Helper()
	const most, rounds = 2 * time.Millisecond, 20
	all := make(answers)
	for round := 1; ; round++ {
		now := s.visit("during", 300*time.Millisecond)
		all.add(now)
		base, worst, at := quantile(now[free], 0.99), time.Duration(0), ""
		for _, policy := range policies {
			if p99 := quantile(now[policy], 0.99); p99 > worst {
				worst, at = p99, policy
			}
		}
		if worst <= base+most {
			s.Logf("p99 once the breaker is open: %s at worst, without limits %s (round %d)", worst, base, round)
			return all
		}
		if round == rounds {
			s.Errorf("%s: p99 %s once the breaker was open, without limits %s, want %s more at most", at, worst, base, most)
			return all
		}
	}
}

// counts are what metrics have counted: requests that the store did not decide on,
// and what became of them.
type counts struct{ undecided, open, closed int }

// checkDuring wants what on_error says, in time, and that all of it is counted.
func (s *sites) checkDuring(during answers, before counts) {
	s.Helper()
	for policy, want := range map[string]map[int]int{
		"local": {http.StatusOK: limit, http.StatusTooManyRequests: len(during["local"]) - limit},
		"allow": {http.StatusOK: len(during["allow"])},
		"deny":  {http.StatusServiceUnavailable: len(during["deny"])},
	} {
		got := statuses(during[policy])
		for status := range got {
			if got[status] != want[status] {
				s.Errorf("%s: statuses %v, want %v", policy, got, want)
			}
		}
	}
	before.open += len(during["allow"])
	before.closed += len(during["deny"])
	for _, policy := range policies {
		before.undecided += len(during[policy])
		s.checkSlowest(policy, during)
	}
	if now := s.counted(); now != before {
		s.Errorf("metrics: %+v, want %+v", now, before)
	}
}

// checkAfter wants each request of the fault to be charged once at most, and no
// counter to let more pass than it may.
func (s *sites) checkAfter(r *remote, o outage, passed []caddyrun.Answer) {
	s.Helper()
	if s.open() {
		s.Error("breaker_open: 1, want 0")
	}
	late := int64(0)
	for i := range 30 {
		n := r.charged(s.T, "deny", "once-"+strconv.Itoa(i))
		if late += n; n > 1 {
			s.Errorf("a request was charged %d times", n)
		}
	}
	want := http.StatusTooManyRequests
	if o.forgets {
		want = http.StatusOK
	}
	for _, policy := range policies {
		caddyrun.Eventually(s, back, fmt.Sprintf("%s: status %d for a counter that was full", policy, want), func() bool {
			return s.get(policy, "full").Status == want
		})
	}
	// What passed without the store is counted there, but for those requests of which it
	// may have heard.
	inDoubt := 0
	for s.get("local", "during").Status == http.StatusOK {
		inDoubt++
	}
	if n := r.charged(s.T, "local", "during"); n != limit || inDoubt > 5 {
		s.Errorf("local: the counter is at %d after %d more, want %d after 5 at most", n, inDoubt, limit)
	}
	undecided := 1 // one may have been charged too late before the fault
	for range 2 * limit {
		switch a := s.get("deny", "half"); a.Status {
		case http.StatusOK:
			passed = append(passed, a)
		case http.StatusServiceUnavailable: // the machine may be too busy for the timeout
			undecided++
		}
	}
	var times []int64
	for _, a := range passed {
		times = append(times, a.Gotten.UnixMilli())
	}
	most := limit
	if o.forgets && !o.absent {
		most += limit / 2 // what had passed before
	}
	if over := traffic.Over(times, most, time.Hour); over > 0 || len(times)+undecided < most {
		s.Errorf("%d passed, want %d", len(times), most)
	}
	if n := r.charged(s.T, "deny", "half"); n != limit {
		s.Errorf("the counter is at %d, want %d", n, limit)
	}
	s.Logf("of 30 requests that were refused at once, %d were charged later", late)
}

// checkLog wants a line when the store goes, with its cause, one when it comes
// back, and nothing else.
func (s *sites) checkLog(cause string) {
	s.Helper()
	s.caddy.Logged(s, "store is unavailable", "store is back")
	lines := s.logged()
	if len(lines) != 2 || !strings.Contains(lines[0], "store is unavailable") || !strings.Contains(lines[1], "store is back") {
		s.Errorf("the log has %q, want that the store is unavailable, and that it is back", lines)
	} else if !regexp.MustCompile(cause).MatchString(lines[0]) {
		s.Errorf("the log has %q, want the cause %q", lines[0], cause)
	}
	if strings.Contains(s.caddy.Log.String(), `"level":"error"`) {
		s.Errorf("the log has an error:\n%s", s.caddy.Log)
	}
	s.keepsSecrets()
}
