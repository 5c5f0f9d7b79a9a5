package topology_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// everywhereWithin is how long after it was set an override holds on all Caddys.
const everywhereWithin = 3 * time.Second

// fleet is three Caddys on one store, each with a storage of its own.
type fleet struct {
	*testing.T
	client    *http.Client
	store     string // as a Caddyfile has it
	addresses [3]string
	caddys    [3]*caddyrun.Process
	config    func(i int) string // of a Caddy that has its address
}

func startFleet(t *testing.T, store string) *fleet {
	t.Helper()
	f := &fleet{T: t, client: caddyrun.NewClient(t), store: store}
	f.config = func(i int) string { return fmt.Sprintf(caddyrun.Sharing, f.TempDir(), f.store, f.addresses[i]) }
	f.startAll()
	return f
}

func (f *fleet) startAll() {
	f.Helper()
	for i := range f.caddys {
		f.start(i)
	}
}

func (f *fleet) start(i int) {
	f.Helper()
	f.addresses[i] = caddyrun.FreeAddress(f)
	f.caddys[i] = caddyrun.Start(f, f.config(i), f.addresses[i])
}

// status returns that of the answer of a Caddy to a request of a key.
func (f *fleet) status(i int, key string) int {
	f.Helper()
	return caddyrun.MustGet(f, f.client, f.addresses[i], key).Status
}

// set has a Caddy set an override. It reports whether the Caddy could.
func (f *fleet) set(i int, record string) bool {
	f.Helper()
	resp, err := f.client.Post("http://"+f.caddys[i].Admin+"/sliding_window/overrides/set", "application/json", strings.NewReader(record))
	if err != nil {
		f.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		f.Fatalf("set %s: status %d", record, resp.StatusCode)
	}
	return resp.StatusCode == http.StatusOK
}

// everywhere waits until requests of a key have a status at each Caddy, for 3 s at most since a time.
func (f *fleet) everywhere(since time.Time, key string, status int) {
	f.Helper()
	for i := range f.caddys {
		caddyrun.Eventually(f, patience, fmt.Sprintf("%d for %s at Caddy %d", status, key, i), func() bool { return f.status(i, key) == status })
	}
	took := time.Since(since)
	if took > everywhereWithin {
		f.Errorf("%s: %d everywhere after %s, want %s at most", key, status, ms(took), everywhereWithin)
	}
	f.Logf("%s: %d everywhere after %s", key, status, ms(took))
}

// known wants every Caddy to have the same records, this number of them, and none to take them for lost.
func (f *fleet) known(count int) {
	f.Helper()
	versions := make(map[string]bool)
	for i := range f.caddys {
		var s control.Status
		_, text := f.caddys[i].Tell(f, http.MethodGet, "/sliding_window/status", "", "")
		if err := json.Unmarshal([]byte(text), &s); err != nil || len(s.Stores) != 1 {
			f.Fatalf("status: %v, %s", err, text)
		}
		if o := s.Stores[0].Overrides; o.Count != count || o.Lost {
			f.Errorf("Caddy %d has %d overrides, lost: %v; want %d", i, o.Count, o.Lost, count)
		}
		versions[s.Stores[0].Overrides.Version] = true
	}
	if len(versions) != 1 {
		f.Errorf("versions %v, want one", versions)
	}
}

// watch asks all Caddys for a key again and again. The function that it returns ends that, and wants all
// answers to have had a status.
func (f *fleet) watch(key string, status int) (end func()) {
	stop, answers := make(chan struct{}), 0
	var group sync.WaitGroup
	group.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			answer, err := caddyrun.Get(f.client, f.addresses[n%len(f.addresses)], key)
			if err != nil || answer.Status != status {
				f.Errorf("%s: %d, %v at Caddy %d, want %d at all times", key, answer.Status, err, n%len(f.addresses), status)
			}
			answers++
		}
	})
	return func() {
		f.Helper()
		close(stop)
		group.Wait()
		f.Logf("%s: %d answers, all with %d", key, answers, status)
	}
}

// Overrides that are set at one of three Caddys hold on all within 3 s, and when a replica takes the place of the
// master that has them: at all times, and for a Caddy that starts later. So do those that are set then.
func TestOverridesOverAFailover(t *testing.T) {
	credentials := "username " + username + "\n\t\t\tpassword " + password + "\n\t\t\tprefix " + prefix
	for name, start := range map[string]func(t *testing.T) (store string, master *redistest.Server, replicas []*redistest.Server){
		"Sentinel": func(t *testing.T) (string, *redistest.Server, []*redistest.Server) {
			w := startWatched(t)
			return fmt.Sprintf("address %s\n\t\t\tmaster main\n\t\t\tsentinel_username %s\n\t\t\tsentinel_password %s\n\t\t\t%s\n\t\t\ttls {\n\t\t\t\tca %s\n\t\t\t}",
				strings.Join(w.options.Addresses, " "), redistest.SentinelUsername, redistest.SentinelPassword, credentials, w.cert.CA()), w.master, w.replicas
		},
		"Cluster": func(t *testing.T) (string, *redistest.Server, []*redistest.Server) {
			c := startCluster(t)
			slot, err := c.nodes[0].Client(t).ClusterKeySlot(t.Context(), prefix+":{overrides}").Result()
			if err != nil {
				t.Fatal(err)
			}
			master := c.owners[slot]
			replica := redistest.AddReplica(t, c.cert, c.nodes, master)
			c.allow(replica)
			var others []string // the master will be gone
			for _, node := range append(c.nodes, replica) {
				if node != master {
					others = append(others, node.TLSAddr)
				}
			}
			return fmt.Sprintf("address %s\n\t\t\tcluster\n\t\t\t%s\n\t\t\ttls {\n\t\t\t\tca %s\n\t\t\t}", strings.Join(others, " "), credentials, c.cert.CA()),
				master, []*redistest.Server{replica}
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, master, replicas := start(t)
			f := startFleet(t, store)
			for i, c := range []struct {
				limit  string
				status int
			}{{`"deny":true`, http.StatusTooManyRequests}, {`"exempt":true`, http.StatusOK}, {`"limits":[{"max":0,"window":"1m"}]`, http.StatusTooManyRequests}} {
				begin := time.Now()
				if !f.set(i, `{"zone":"api","key":"changing",`+c.limit+`}`) {
					t.Fatal("the store is away")
				}
				f.everywhere(begin, "changing", c.status)
			}
			begin := time.Now()
			f.set(0, `{"zone":"api","key":"banned","deny":true}`)
			f.everywhere(begin, "banned", http.StatusTooManyRequests)
			f.known(2)

			follow(t, master, len(replicas))
			end := f.watch("banned", http.StatusTooManyRequests)
			master.Kill()
			gone := time.Now()
			caddyrun.Eventually(t, 2*patience, "an override can be set", func() bool {
				begin = time.Now()
				return f.set(1, `{"zone":"api","pattern":"late-*","deny":true}`)
			})
			t.Logf("overrides can be set again after %s", ms(begin.Sub(gone)))
			f.everywhere(begin, "late-comer", http.StatusTooManyRequests)
			end()
			f.known(3)

			f.caddys[2].End(t)
			f.start(2)
			for _, key := range []string{"banned", "changing", "late-comer"} {
				f.everywhere(time.Now(), key, http.StatusTooManyRequests)
			}
			f.known(3)
		})
	}
}
