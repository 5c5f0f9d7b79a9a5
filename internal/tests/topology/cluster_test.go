package topology_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// cluster is one of three masters and further nodes, with slots that move.
type cluster struct {
	*testing.T
	cert    *redistest.Certificate
	nodes   []*redistest.Server
	owners  []*redistest.Server // of each slot
	options redis.Options
}

const slots = 16384

func startCluster(t *testing.T) *cluster {
	c := &cluster{T: t, cert: redistest.NewCertificate(t), owners: make([]*redistest.Server, slots)}
	c.nodes = redistest.StartTLSCluster(t, c.cert, 3)
	for i, node := range c.nodes { // as StartTLSCluster divides them
		for slot := i * slots / 3; slot < (i+1)*slots/3; slot++ {
			c.owners[slot] = node
		}
	}
	for _, node := range c.nodes {
		c.allow(node)
	}
	c.options = redis.Options{
		Addresses: []string{c.nodes[0].TLSAddr}, Cluster: true,
		Username: username, Password: password, TLS: c.cert.Client(), Prefix: prefix,
	}
	return c
}

func (c *cluster) allow(node *redistest.Server) {
	c.Helper()
	allow(c.T, node, prefix, "+cluster|slots", "+asking")
}

// slot returns that of a charge's counter.
func (c *cluster) slot(charge window.Charge) int {
	c.Helper()
	n, err := c.nodes[0].Client(c.T).ClusterKeySlot(c.Context(), key(charge)).Result()
	if err != nil {
		c.Fatal(err)
	}
	return int(n)
}

// key is the name of a charge's counter.
func key(charge window.Charge) string {
	return string(engine.AppendKey([]byte(prefix+":2-"), &charge))
}

// TestReshard moves slots for 20 s under load, among three nodes and onto one that was
// added. No request fails, none is charged twice, and no limit is exceeded; through
// Caddy, too, where each key gets all that its limit allows.
func TestReshard(t *testing.T) {
	t.Parallel()
	const (
		limit  = 10
		length = 500 * time.Millisecond
		block  = 128 // slots that move together
		lasts  = 20 * time.Second
	)
	c := startCluster(t)
	store := newStore(t, c.options, patience)
	hot := hotCharges(8, limit, length, window.Zset{}, window.Log{}, window.Slices{}, window.Stream{})
	l, site := startLoad(t, store, hot, math.MaxInt64), startSite(t, c)
	moves, slotsMoved, keys := 0, 0, 0
	for start := time.Now(); time.Since(start) < lasts; moves++ {
		if len(c.nodes) == 3 && time.Since(start) > lasts/2 {
			added := redistest.AddNode(t, c.cert, c.nodes)
			c.allow(added)
			c.nodes = append(c.nodes, added)
		}
		slot := c.slot(hot[moves%len(hot)])
		from := c.owners[slot]
		var some []int
		for n := slot; n < slots && len(some) < block && c.owners[n] == from; n++ {
			some = append(some, n)
		}
		others := slices.DeleteFunc(slices.Clone(c.nodes), func(s *redistest.Server) bool { return s == from })
		to := others[moves%len(others)]
		if len(c.nodes) > 3 && from != c.nodes[3] {
			to = c.nodes[3]
		}
		keys += redistest.MoveSlots(t, c.nodes, from, to, some...)
		for _, n := range some {
			c.owners[n] = to
		}
		slotsMoved += len(some)
	}
	site.end()
	all := l.end()

	if _, _, failed := outage(all); failed > 0 {
		t.Errorf("%d requests failed, want none%s", failed, errorTexts(all))
	}
	checkWindows(t, all, len(hot), limit, length)
	n := charges(t, store, all)
	for _, a := range all {
		want := int64(0)
		if a.allowed {
			want = 1
		}
		if a.once != "" && n[a.once] != want {
			t.Errorf("request %s was charged %d times, want %d", a.once, n[a.once], want)
		}
	}
	redirects := c.errors()
	for _, kind := range []string{"ASK", "MOVED"} {
		if redirects[kind] == 0 {
			t.Errorf("no request was answered %s", kind)
		}
	}
	if redirects["TRYAGAIN"] > 0 { // no call has two keys
		t.Errorf("%d were answered TRYAGAIN", redirects["TRYAGAIN"])
	}
	t.Logf("%d requests; %d slots with %d keys moved in %d moves; answers %v; slowest answer %s",
		len(all), slotsMoved, keys, moves, redirects, ms(slowest(all)))
}

// checkWindows holds that each hot counter admitted no more than the limit in any
// window, on the clock that decided.
func checkWindows(t *testing.T, all []asked, counters, limit int, length time.Duration) {
	t.Helper()
	for i := range counters {
		var at []int64
		denied := 0
		for _, a := range all {
			switch {
			case a.hot != i:
			case a.allowed:
				at = append(at, a.at)
			case a.err == nil:
				denied++
			}
		}
		slices.Sort(at)
		over := 0
		for n := limit; n < len(at); n++ {
			if at[n]-at[n-limit] < length.Milliseconds() {
				over++
			}
		}
		if over > 0 {
			t.Errorf("counter %d: %d of %d admissions are over the limit", i, over, len(at))
		}
		if denied == 0 || len(at) <= limit {
			t.Errorf("counter %d: %d admitted and %d denied do not put the limit to the test", i, len(at), denied)
		}
	}
}

// errors returns how often the nodes have answered with each kind of error.
func (c *cluster) errors() map[string]int {
	c.Helper()
	n := make(map[string]int)
	for _, node := range c.nodes {
		stats := node.Client(c.T).InfoMap(c.Context(), "errorstats").Val()["Errorstats"]
		for kind, count := range stats {
			var more int
			_, _ = fmt.Sscanf(count, "count=%d", &more)
			n[strings.TrimPrefix(kind, "errorstat_")] += more
		}
	}
	return n
}

// TestClusterFailover takes a master away that has a replica. What it admitted and the
// replica came not to know is admitted again, and no more.
func TestClusterFailover(t *testing.T) {
	for name, takeAway := range map[string]func(*redistest.Server){
		"Killed": (*redistest.Server).Kill,
		"Hung":   (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &failing{cluster: startCluster(t)}
			c.replica = redistest.AddReplica(t, c.cert, c.nodes, c.nodes[0])
			c.allow(c.replica)
			c.options.Addresses = []string{c.nodes[1].TLSAddr, c.nodes[2].TLSAddr} // the first will be gone
			var hot []window.Charge
			for _, charge := range hotCharges(100, hotLimit, time.Hour, window.Zset{}) {
				if len(hot) < hotKeys && c.owners[c.slot(charge)] == c.nodes[0] {
					hot = append(hot, charge)
				}
			}
			testLost(t, c, hot, func() { takeAway(c.nodes[0]) })
		})
	}
}

// failing is a Cluster of which the first node has a replica.
type failing struct {
	*cluster
	replica *redistest.Server
}

func (c *failing) parts() (redis.Options, *redistest.Server, []*redistest.Server) {
	return c.options, c.nodes[0], []*redistest.Server{c.replica}
}

// named waits until all nodes say so, and take the Cluster for whole.
func (c *failing) named(l *load, master *redistest.Server) {
	l.Helper()
	for _, node := range append([]*redistest.Server{master}, c.nodes[1:]...) {
		client := node.Client(l.T)
		l.eventually("the nodes agree on the new master", func() bool {
			info := client.ClusterInfo(l.Context()).Val()
			ranges, err := client.ClusterSlots(l.Context()).Result() //nolint:staticcheck // ClusterShards came with Redis 7
			return err == nil && strings.Contains(info, "cluster_state:ok") && slices.ContainsFunc(ranges, func(r goredis.ClusterSlot) bool {
				return r.Start == 0 && r.Nodes[0].Addr == master.Addr
			})
		})
	}
}

func (c *failing) spent(t *testing.T, replica *redistest.Server, hot []window.Charge) ([]int64, error) {
	conn := replica.Client(t).Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.ReadOnly(t.Context()).Err(); err != nil {
		return nil, err
	}
	return spent(t, conn, hot)
}

// spent returns what a server knows to be spent on counters of zset: members, but for that which
// says how far back the zone looks. Its score is above 2^44.
func spent(t *testing.T, server goredis.Cmdable, hot []window.Charge) ([]int64, error) {
	n := make([]int64, len(hot))
	for i := range hot {
		var err error
		if n[i], err = server.ZCount(t.Context(), key(hot[i]), "-inf", "(17592186044416").Result(); err != nil {
			return nil, err
		}
	}
	return n, nil
}
