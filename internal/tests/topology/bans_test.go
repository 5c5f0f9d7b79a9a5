package topology_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/bans/banbook"
	"github.com/slidingwindow/caddy-sliding-window/internal/control"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// banning is a Caddyfile of a Caddy that bans at the first denial, with 403. The %s take the lines of its store and the
// addresses of two sites.
const banning = `{
	admin {admin}
	persist_config off
	auto_https off
	storage_clean_interval off
	sliding_window {
		store redis {
			%s
		}
	}
}
http://%s {
	respond /healthz ok
	sliding_window {
		zone api {
			key {header.X-Key}
			limit 1 1h
			ban 1h {
				status 403
			}
		}
	}
	respond ok
}
http://%s {
	respond /healthz ok
	sliding_window {
		zone short {
			key {header.X-Key}
			limit 1 1s
			ban 3s {
				status 403
			}
		}
	}
	respond ok
}
`

// banFleet is a fleet that bans. Each Caddy has a second site, on which bans are short.
type banFleet struct {
	*fleet
	shorts [3]string
}

func startBanFleet(t *testing.T, store string) *banFleet {
	t.Helper()
	f := &banFleet{fleet: &fleet{T: t, client: caddyrun.NewClient(t), store: store}}
	f.config = func(i int) string {
		f.shorts[i] = caddyrun.FreeAddress(t)
		return fmt.Sprintf(banning, f.store, f.addresses[i], f.shorts[i])
	}
	f.startAll()
	return f
}

// ban has a Caddy ban a key, and returns when the denial that did it was answered.
func (f *banFleet) ban(address, key string) time.Time {
	f.Helper()
	for range 2 {
		caddyrun.MustGet(f, f.client, address, key)
	}
	return time.Now()
}

// known returns how long after a time all Caddys knew that a key is banned, or that it is not. They are asked in a way that
// is no denial: with the call that brings one they would hear of it at once.
func (f *banFleet) known(since time.Time, key string, banned bool) time.Duration {
	f.Helper()
	for _, c := range f.caddys {
		for {
			_, text := c.Tell(f, http.MethodPost, "/sliding_window/inspect", "application/json", `{"zone":"api","key":"`+key+`"}`)
			if strings.Contains(text, `"ban":`) == banned {
				break
			}
			if time.Since(since) > patience {
				f.Fatalf("%s: ban %v not everywhere after %s: %s", key, banned, patience, text)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return time.Since(since)
}

// everywhere returns how long after a time all Caddys had answered requests of a key with a status.
func (f *banFleet) everywhere(since time.Time, key string, status int) time.Duration {
	f.Helper()
	for _, address := range f.addresses {
		for caddyrun.MustGet(f, f.client, address, key).Status != status {
			if time.Since(since) > patience {
				f.Fatalf("%s: not %d everywhere after %s", key, status, patience)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}
	return time.Since(since)
}

// told logs the least, middle and longest of some times, and wants none above a second.
func (f *banFleet) told(what string, all []time.Duration) {
	f.Helper()
	slices.Sort(all)
	f.Logf("%s: %s to %s, half of %d by %s", what, ms(all[0]), ms(all[len(all)-1]), len(all), ms(all[len(all)/2]))
	if last := all[len(all)-1]; last > time.Second {
		f.Errorf("%s: after %s, want 1 s at most", what, ms(last))
	}
}

// book is what a further Caddy knows of the bans of a store.
func (f *banFleet) book(o redis.Options) *banbook.Book {
	b := banbook.New(newStore(f.T, o, timeout).Engine(), engine.StoreID{Name: "book of " + f.Name()})
	f.Cleanup(b.Close)
	return b
}

// entry returns the ban of a key that the store has.
func (f *banFleet) entry(b *banbook.Book, key string) banbook.Entry {
	f.Helper()
	if err := b.Look(f.Context()); err != nil {
		f.Fatal(err)
	}
	all := b.List()
	i := slices.IndexFunc(all, func(e banbook.Entry) bool { return e.Key != nil && *e.Key == key })
	if i < 0 {
		f.Fatalf("the store has no ban of %s", key)
	}
	return all[i]
}

// A ban by one of three Caddys is in force on all within a second, and so is its lift, in Redis and in a Cluster. A ban
// outlives a restart of all Caddys. While the server is gone it holds to its end, and no longer.
func TestBansInAFleet(t *testing.T) {
	const tries = 6
	for name, start := range map[string]func(t *testing.T) (nodes []*redistest.Server, o redis.Options){
		"Redis": func(t *testing.T) ([]*redistest.Server, redis.Options) {
			s := redistest.Start(t)
			return []*redistest.Server{s}, redis.Options{Addresses: []string{s.Addr}}
		},
		"Cluster": func(t *testing.T) ([]*redistest.Server, redis.Options) {
			nodes := redistest.StartCluster(t, 3)
			return nodes, redis.Options{Addresses: []string{nodes[0].Addr, nodes[1].Addr}, Cluster: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, options := start(t)
			f := startBanFleet(t, "address "+strings.Join(options.Addresses, " ")+"\n\t\t\ttimeout 500ms")
			operator := f.book(options)
			var bans, lifts []time.Duration
			for i := range tries {
				key := fmt.Sprint("key ", i)
				bans = append(bans, f.known(f.ban(f.addresses[i%3], key), key, true))
			}
			f.told("a ban is in force everywhere", bans)
			for i := range tries {
				key := fmt.Sprint("key ", i)
				e := f.entry(operator, key)
				begin := time.Now()
				if n, err := operator.Lift(t.Context(), []banbook.Entry{e}, control.Why{}); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				lifts = append(lifts, f.known(begin, key, false))
			}
			f.told("a lift is in force everywhere", lifts)
			for range 2 { // denials after a lift are no strikes
				for i := range tries {
					if took := f.everywhere(time.Now(), fmt.Sprint("key ", i), http.StatusTooManyRequests); took > time.Second/2 {
						t.Errorf("key %d is banned again", i)
					}
				}
				time.Sleep(700 * time.Millisecond)
			}

			f.everywhere(f.ban(f.addresses[0], "restarted"), "restarted", http.StatusForbidden)
			for i := range f.caddys {
				f.caddys[i].End(t)
			}
			for i := range f.caddys {
				f.start(i)
				if got := caddyrun.MustGet(t, f.client, f.addresses[i], "restarted").Status; got != http.StatusForbidden {
					t.Logf("status %d at Caddy %d, which serves requests before it has looked at the bans", got, i)
				}
			}
			f.told("a ban is in force after a restart of all", []time.Duration{f.everywhere(time.Now(), "restarted", http.StatusForbidden)})

			f.everywhere(f.ban(f.addresses[0], "killed"), "killed", http.StatusForbidden)
			f.ban(f.shorts[0], "short")
			caddyrun.Eventually(t, patience, "the short ban is in force everywhere", func() bool {
				return !slices.ContainsFunc(f.shorts[:], func(a string) bool { return caddyrun.MustGet(t, f.client, a, "short").Status != http.StatusForbidden })
			})
			until := f.entry(operator, "short").Until
			for _, node := range nodes {
				node.Kill()
			}
			f.holdsUntil(until, "short")
			f.everywhere(time.Now(), "killed", http.StatusForbidden)
		})
	}
}

// holdsUntil sends 100 requests of a key a second to each Caddy until none is banned. It wants the ban to end when it is to.
func (f *banFleet) holdsUntil(until time.Time, key string) {
	f.Helper()
	var group sync.WaitGroup
	for i, address := range f.shorts {
		group.Go(func() {
			last := time.Time{}
			for n := 0; ; n++ {
				a, err := caddyrun.Get(f.client, address, key)
				if err != nil {
					f.Error(err)
					return
				}
				if a.Status != http.StatusForbidden {
					f.Logf("Caddy %d: %d requests were denied, the last was sent %s before the end, the first that was not %s after it",
						i, n, until.Sub(last).Round(100*time.Microsecond), a.Sent.Sub(until).Round(100*time.Microsecond))
					if late := a.Sent.Sub(until); a.Gotten.Before(until) || late > 250*time.Millisecond {
						f.Errorf("Caddy %d: the ban has ended %s after it was to", i, late)
					}
					return
				}
				last = a.Sent
				time.Sleep(time.Until(a.Sent.Add(10 * time.Millisecond)))
			}
		})
	}
	group.Wait()
}

// commandsOf counts the commands that clients send to a server in a time, by what their arguments hold.
func commandsOf(t *testing.T, s *redistest.Server, during time.Duration, parts ...string) (n map[string]int) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(during))
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	n = make(map[string]int)
	for lines.Scan() {
		line := lines.Text()
		if strings.Contains(line, " lua] ") {
			continue
		}
		for _, part := range parts {
			if strings.Contains(line, part) {
				n[part]++
			}
		}
	}
	return n
}

// A client that sends each of three Caddys 100 requests a second through its ban costs Redis nothing: it is asked for bans
// as often as without the client, twice a second by each Caddy.
func TestBannedClientCostsNothing(t *testing.T) {
	t.Parallel() // it waits
	s := redistest.Start(t)
	f := startBanFleet(t, "address "+s.Addr+"\n\t\t\ttimeout 500ms")
	const lasts = 4 * time.Second
	quiet := commandsOf(t, s, lasts, "{bans}", "zset")
	f.everywhere(f.ban(f.addresses[0], "anna"), "anna", http.StatusForbidden)
	stop, sent := make(chan struct{}), [3]int{}
	var group sync.WaitGroup
	for i, address := range f.addresses {
		group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				if a, err := caddyrun.Get(f.client, address, "anna"); err != nil || a.Status != http.StatusForbidden {
					t.Errorf("status %d, %v, want 403", a.Status, err)
				}
				sent[i]++
			}
		})
	}
	busy := commandsOf(t, s, lasts, "{bans}", "zset")
	close(stop)
	group.Wait()
	t.Logf("in %s: %d looks of three Caddys without the client, %d with its %v requests, which asked for %d counters", lasts, quiet["{bans}"], busy["{bans}"], sent, busy["zset"])
	most := 3 * (int(lasts/(450*time.Millisecond)) + 2)
	if busy["{bans}"] > most || quiet["{bans}"] > most || busy["{bans}"] == 0 {
		t.Errorf("%d looks without the client and %d with it, want %d at most", quiet["{bans}"], busy["{bans}"], most)
	}
	if busy["zset"] > 0 {
		t.Errorf("%d calls for counters, want none", busy["zset"])
	}
}

// Each Caddy that knows a ban brings it back to a Redis that was flushed, and says so. The ban is in force all the time.
func TestBansAreWrittenAgain(t *testing.T) {
	t.Parallel() // it waits
	s := redistest.Start(t)
	f := startBanFleet(t, "address "+s.Addr+"\n\t\t\ttimeout 500ms")
	f.everywhere(f.ban(f.addresses[0], "anna"), "anna", http.StatusForbidden)
	operator := f.book(redis.Options{Addresses: []string{s.Addr}})
	before := f.entry(operator, "anna")
	for range 3 {
		if err := s.Client(t).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			for i, address := range f.addresses {
				if got := caddyrun.MustGet(t, f.client, address, "anna").Status; got != http.StatusForbidden {
					t.Fatalf("status %d at Caddy %d, want 403", got, i)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := s.Client(t).HLen(t.Context(), "sw:{bans}").Val(); n == 0 {
			t.Error("the bans are not in Redis")
		}
	}
	if after := f.entry(operator, "anna"); !after.Until.Equal(before.Until) {
		t.Errorf("the ban ends at %s, and before at %s", after.Until, before.Until)
	}
	told := 0
	for _, c := range f.caddys {
		told += strings.Count(c.Log.String(), "the store had lost bans; they were written again")
	}
	if told == 0 {
		t.Error("no Caddy says that bans were lost")
	}
	f.caddys[1].End(t)
	f.start(1)
	if got := caddyrun.MustGet(t, f.client, f.addresses[1], "anna").Status; got != http.StatusForbidden {
		t.Errorf("the first request after a restart: status %d, want 403", got)
	}
}

// While a secret changes, bans of the former one stay in force, and levels move with the next denial. They stay when the former
// secret is gone.
func TestBansOverAChangeOfSecret(t *testing.T) {
	t.Parallel() // it waits
	s := redistest.Start(t)
	store := func(secrets string) string {
		return "address " + s.Addr + "\n\t\t\ttimeout 500ms\n\t\t\thash_keys " + secrets
	}
	const former, newer = "the-former-secret-of-the-fleet", "the-newer-secret-of-the-fleet"
	f := startBanFleet(t, store(former))
	restart := func(secrets string) {
		t.Helper()
		f.store = store(secrets)
		for i := range f.caddys {
			f.caddys[i].End(t)
		}
		for i := range f.caddys {
			f.start(i)
		}
	}
	f.ban(f.shorts[0], "short")
	f.ban(f.addresses[0], "anna")
	f.everywhere(time.Now(), "anna", http.StatusForbidden)
	restart(newer + " " + former)
	f.everywhere(time.Now(), "anna", http.StatusForbidden)
	// Until the first ban, of 3 s, is over.
	caddyrun.Eventually(t, patience, "a ban of the second level", func() bool {
		a := caddyrun.MustGet(t, f.client, f.shorts[0], "short")
		return a.Status == http.StatusForbidden && a.Header.Get("Retry-After") == "6"
	})
	restart(newer)
	if a := caddyrun.MustGet(t, f.client, f.shorts[1], "short"); a.Status != http.StatusForbidden {
		t.Errorf("status %d when the former secret is gone, want 403", a.Status)
	}
	caddyrun.Eventually(t, patience, "a ban of the third level", func() bool {
		a := caddyrun.MustGet(t, f.client, f.shorts[2], "short")
		return a.Status == http.StatusForbidden && a.Header.Get("Retry-After") == "12"
	})
}

// A reload that opens the store anew while Redis is away keeps bans, those that began in that time, too. They are in Redis and in
// force everywhere when Redis is back.
func TestBansOverAReloadWithoutRedis(t *testing.T) {
	t.Parallel() // it waits
	s := redistest.Start(t)
	f := startBanFleet(t, "address "+s.Addr+"\n\t\t\ttimeout 500ms")
	f.everywhere(f.ban(f.addresses[0], "before"), "before", http.StatusForbidden)
	s.Kill()
	caddyrun.Eventually(t, patience, "a ban begins without Redis", func() bool {
		return caddyrun.MustGet(t, f.client, f.addresses[0], "during").Status == http.StatusForbidden
	})
	wants := func(what string) {
		t.Helper()
		for _, key := range []string{"before", "during"} {
			if got := caddyrun.MustGet(t, f.client, f.addresses[0], key).Status; got != http.StatusForbidden {
				t.Errorf("%s: status %d for %s, want 403", what, got, key)
			}
		}
	}
	for _, timeout := range []string{"400ms", "300ms"} {
		text := fmt.Sprintf(strings.ReplaceAll(banning, "{admin}", f.caddys[0].Admin), "address "+s.Addr+"\n\t\t\ttimeout "+timeout, f.addresses[0], f.shorts[0])
		if status, body := f.caddys[0].Tell(t, http.MethodPost, "/load", "text/caddyfile", text); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
		f.client.CloseIdleConnections()
		wants("after a reload to " + timeout)
	}
	s.Restart(t)
	since := time.Now()
	f.everywhere(since, "before", http.StatusForbidden)
	caddyrun.Eventually(t, patience, "the ban that began without Redis is in Redis", func() bool { return s.Client(t).HExists(t.Context(), "sw:{bans}", "api during").Val() })
	if got := f.everywhere(since, "during", http.StatusForbidden); got > patience/2 {
		t.Errorf("everywhere after %s", got)
	}
	wants("when Redis is back")
}
