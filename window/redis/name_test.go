package redis_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

const secret, former = "a secret of a fleet", "the secret before it"

// hashed returns the hash that replaces a key: printf %s key | openssl dgst -sha256
// -hmac secret, in URL-safe base64.
func hashed(secret, key string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(key))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestHashedKeys scans a server for the identifiers of clients. With a secret, none
// are there, and every counter has the name that the documentation says.
func TestHashedKeys(t *testing.T) {
	clients := []string{
		"192.0.2.1", "2001:db8::/64", "anna@example.com", "k", "", strings.Repeat("long", 1000),
		"line\r\nbreak", "nul\x00", `"quoted"`, "{tag}", "\xff\xfe", "*3\r\n$3\r\nDEL\r\n",
	}
	for _, o := range []redis.Options{{KeySecret: secret}, {KeySecret: secret, FormerKeySecret: former}} {
		own := redistest.Start(t)
		o.Addresses, o.Prefix = []string{own.Addr}, "sw"
		s, c := newStore(t, o), own.Client(t)
		// printf %s 192.0.2.1 | openssl dgst -sha256 -hmac "a secret of a fleet" -binary | base64 | tr +/ -_ | tr -d =
		names := map[string]bool{"sw:2-zset:zone:h9pRFs6LX38n518cEstBN8zfYxDEI-ijThp8p7aGwDc": true}
		for _, algo := range algorithms {
			for _, client := range clients {
				one := charge("zone", client, 5, time.Hour)
				one.Algorithm = suited(algo, time.Hour)
				take(t, s, one)
				names["sw:2-"+algo.Name()+":zone:"+hashed(secret, client)] = true
				if o.FormerKeySecret != "" {
					names["sw:2-"+algo.Name()+":zone:"+hashed(former, client)] = true
				}
			}
		}
		found := keys(t, c, "*")
		for _, name := range found {
			if !names[name] {
				t.Errorf("there is a key %q", name)
			}
		}
		if len(found) != len(names) {
			t.Errorf("there are %d keys, want %d", len(found), len(names))
		}
		c.FlushAll(t.Context())
		for _, client := range clients {
			take(t, s, packed("zone", client, 1, 5, time.Hour))
		}
		dump := dumpHash(t, c.HGetAll(t.Context(), "sw:2-pack-gcra:zone:1:0").Val())
		for _, client := range clients {
			// A field must not be what anybody could compute who has the list of clients.
			sum := sha256.Sum256([]byte(client))
			if strings.Contains(dump, string(sum[8:20])) || len(client) > 1 && strings.Contains(dump, client) {
				t.Errorf("a field shows %.20q", client)
			}
		}
	}
}

func dumpHash(t *testing.T, fields map[string]string) string {
	t.Helper()
	if len(fields) < 2 {
		t.Fatalf("the hash has %d fields", len(fields))
	}
	var dump strings.Builder
	for field, value := range fields {
		dump.WriteString(field + "=" + value + "\n")
	}
	return dump.String()
}

// TestHashedNative holds the name of what CL.THROTTLE counts, and that it takes no
// part while there are two names.
func TestHashedNative(t *testing.T) {
	asked := make(chan string, 10)
	addr := fakeServer(t, func(args []string) string {
		asked <- args[0] + " " + args[1]
		return integers(0, 5, 4, -1, 12)
	})
	one := charge("zone", "192.0.2.1", 5, time.Minute)
	one.Algorithm = window.GCRA{Native: window.NativeAuto}
	take(t, newStore(t, redis.Options{Addresses: []string{addr}, Prefix: "sw", KeySecret: secret}), one)
	if got, want := <-asked, "cl.throttle sw:2-native-gcra:zone:"+hashed(secret, "192.0.2.1"); got != want {
		t.Errorf("asked %q, want %s", got, want)
	}
	s := newStore(t, redis.Options{Addresses: []string{addr}, KeySecret: secret, FormerKeySecret: former})
	_, _ = s.Take(t.Context(), []window.Charge{one}) // the server has no script
	if got := <-asked; !strings.HasPrefix(got, "evalsha ") {
		t.Errorf("asked %q, want the script", got)
	}
	if err := redis.Full(s).CheckAlgorithm(window.GCRA{Native: window.NativeOn}); err == nil || !strings.Contains(err.Error(), "native") {
		t.Errorf("CheckAlgorithm = %v, want advice on native", err)
	}
	for _, algo := range append(algorithms, window.GCRA{Native: window.NativeAuto}) {
		if err := redis.Full(s).CheckAlgorithm(algo); err != nil {
			t.Errorf("CheckAlgorithm(%s) = %v, want nil", algo.Name(), err)
		}
	}
	if err := redis.Full(newStore(t, redis.Options{KeySecret: secret})).CheckAlgorithm(window.GCRA{Native: window.NativeOn}); err != nil {
		t.Errorf("CheckAlgorithm with one secret = %v, want nil", err)
	}
}

func openHashed(t *testing.T, clock *windowtest.Clock) window.Store {
	return redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, KeySecret: secret}))
}

func openRotating(t *testing.T, clock *windowtest.Clock) window.Store {
	return redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, KeySecret: secret, FormerKeySecret: former}))
}

func TestAgreesWithMemoryHashed(t *testing.T) { windowtest.Agree(t, 5, openMemory, openHashed) }

func TestAgreesWithMemoryRotating(t *testing.T) { windowtest.Agree(t, 10, openMemory, openRotating) }

// TestRotation walks a fleet through changes of the secret, while clients come to
// all of it, and compares every decision with that of one store in memory. First
// some have both secrets and the others the former one; then, for a window and a
// slice, all have both; then some have both and the others the new one. Adaptive
// slices are left out: how long they are depends on what the counter holds.
func TestRotation(t *testing.T) {
	for name, algo := range map[string]window.Algorithm{
		"zset": window.Zset{}, "log": window.Log{}, "stream": window.Stream{}, "gcra": window.GCRA{},
		"slices": window.Slices{}, "weighted slices": window.Slices{Count: 10, Weighted: true},
		"layers": window.Layers{Coarse: time.Second, Fine: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newFleet(t, algo).rotate(4)
		})
	}
}

// fleet is the stores of a fleet whose secret changes, and one that knows better.
type fleet struct {
	*testing.T
	*rand.Rand
	algo            window.Algorithm
	clock           *windowtest.Clock
	prefix          string
	oracle          window.Store
	denied, allowed int
	admitted        map[string][]unit // by zone and key
}

type unit struct{ at, cost int64 }

const fleetWindow = 10 * time.Second

func newFleet(t *testing.T, algo window.Algorithm) *fleet {
	clock := windowtest.NewClock()
	return &fleet{
		T: t, Rand: rand.New(rand.NewPCG(1, 1)), algo: algo, clock: clock, oracle: openMemory(t, clock),
		prefix: freshPrefix("rotation"), admitted: make(map[string][]unit),
	}
}

func (f *fleet) rotate(times int) {
	open := func(current, former string) window.Store {
		return redis.AskAlways(newStore(f.T, redis.Options{Now: f.clock.Now, Prefix: f.prefix, KeySecret: current, FormerKeySecret: former}))
	}
	old := open("0", "")
	for n := range times {
		both, next := open(fmt.Sprint(n+1), fmt.Sprint(n)), open(fmt.Sprint(n+1), "")
		f.walk(200, old, both)
		for from := f.clock.Now(); f.clock.Now() <= from+fleetWindow.Milliseconds()*11/10; {
			f.walk(1, both)
		}
		f.walk(200, both, next)
		old = next
	}
	if f.denied < 100 || f.allowed < 100 {
		f.Errorf("%d denied, %d allowed: the walk proves little", f.denied, f.allowed)
	}
}

// walk makes clients come to any of the stores.
func (f *fleet) walk(steps int, stores ...window.Store) {
	f.Helper()
	for range steps {
		f.clock.Add(f.Int64N(200))
		store, charges := stores[f.IntN(len(stores))], f.charges()
		got := decisionsOf(f.T, store, charges)
		if window.Allowed(got) {
			f.allowed++
		} else {
			f.denied++
		}
		if f.algo == (window.GCRA{}) {
			f.checkBuckets(charges, got)
			continue
		}
		if want := decisionsOf(f.T, f.oracle, charges); !slices.Equal(got, want) {
			f.Fatalf("%v:\ngot  %+v\nwant %+v", charges, got, want)
		}
		if window.Allowed(got) && charges[0].Cost > 0 && f.IntN(6) == 0 {
			delta := f.Int64N(5) - 3
			for _, s := range []window.Store{f.oracle, store} {
				if err := engine.Settle(f.Context(), s, charges[0], got[0].At, delta); err != nil {
					f.Fatal(err)
				}
			}
		}
	}
}

func (f *fleet) charges() []window.Charge {
	c := charge("zone", strconv.Itoa(f.IntN(3)), 20, fleetWindow)
	c.Cost, c.Algorithm = f.Int64N(4), f.algo
	if f.algo == (window.GCRA{}) && f.IntN(2) == 0 {
		c.Zone, c.Pack = "packed", 1
	}
	charges := []window.Charge{c}
	if f.IntN(3) == 0 {
		c.Zone, c.Key, c.Pack = "second", "all", 0
		c.Policies = []window.Policy{{Limit: 40, Window: fleetWindow}}
		charges = append(charges, c)
	}
	return charges
}

// checkBuckets holds what gcra promises: at most twice the limit less one in a
// window, and no denial where a bucket that holds all has room. A bucket that began
// later holds less for as long as it does not run empty.
func (f *fleet) checkBuckets(charges []window.Charge, got []window.Decision) {
	f.Helper()
	want := decisionsOf(f.T, f.oracle, charges)
	if window.Allowed(want) && !window.Allowed(got) {
		f.Fatalf("%v: got %+v, want %+v", charges, got, want)
	}
	if !window.Allowed(got) {
		return
	}
	for i, c := range charges {
		if !window.Allowed(want) && c.Cost > 0 {
			if err := f.oracle.ChargeMore(f.Context(), c, c.Cost); err != nil {
				f.Fatal(err)
			}
		}
		name := c.Zone + " " + c.Key
		f.admitted[name] = append(f.admitted[name], unit{got[i].At, c.Cost})
		sum := int64(0)
		for _, u := range f.admitted[name] {
			if u.at > got[i].At-fleetWindow.Milliseconds() {
				sum += u.cost
			}
		}
		if most := 2*c.Policies[0].Limit - 1; sum > most {
			f.Fatalf("%s: %d units in a window, want %d at most", name, sum, most)
		}
	}
}

func decisionsOf(t *testing.T, s window.Store, charges []window.Charge) []window.Decision {
	t.Helper()
	ds, err := s.Take(t.Context(), charges)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// TestRotationResets holds that a counter is reset under both names.
func TestRotationResets(t *testing.T) {
	open := func(current, former string) *redis.Store {
		return redis.AskAlways(newStore(t, redis.Options{Prefix: "resets", KeySecret: current, FormerKeySecret: former}))
	}
	both := open(secret, former)
	for _, algo := range algorithms {
		one := charge("zone", "key", 1, time.Hour)
		one.Algorithm = suited(algo, time.Hour)
		take(t, both, one)
		for _, s := range []*redis.Store{open(secret, ""), open(former, "")} {
			if d := take(t, s, one)[0]; d.Allowed {
				t.Errorf("%s: Take = %+v, want a denial", algo.Name(), d)
			}
		}
		if err := both.Reset(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if left := keys(t, server.Client(t), "resets:2-"+algo.Name()+":*"); len(left) > 0 {
			t.Errorf("%s: %q is left after Reset", algo.Name(), left)
		}
	}
}

// TestRotationLease lets a lease end while there are two names.
func TestRotationLease(t *testing.T) {
	clock := windowtest.NewClock()
	open := func(current, former string) *redis.Store {
		return redis.AskAlways(newStore(t, redis.Options{Now: clock.Now, Prefix: "leasing", KeySecret: current, FormerKeySecret: former}))
	}
	both := open(secret, former)
	one := charge("zone", "key", 100, time.Minute)
	one.Lease = window.Lease{Units: 10, TTL: time.Second}
	for range 13 {
		take(t, both, one)
	}
	clock.Add(1_000)
	redis.Leases(both).EndDue()
	if left := redis.Leases(both).Left(); left != 0 {
		t.Fatalf("%d units are left in leases", left)
	}
	one.Lease, one.Cost = window.Lease{}, 0
	for i, s := range []*redis.Store{open(secret, ""), open(former, "")} {
		if d := take(t, s, one)[0]; d.Remaining != 100-13 {
			t.Errorf("secret %d: %d remaining, want %d", i, d.Remaining, 100-13)
		}
	}
}

// testClusterRotation spends under two names, which are on nodes of their own.
func testClusterRotation(t *testing.T, node string) {
	open := func(current, former string) *redis.Store {
		return redis.AskAlways(newStore(t, redis.Options{Addresses: []string{node}, Cluster: true, Prefix: "rotation", KeySecret: current, FormerKeySecret: former}))
	}
	both := open(secret, former)
	testClusterAllOrNothing(t, both)
	single := []*redis.Store{open(secret, ""), open(former, "")}
	for i := range 20 {
		one := charge("zone", strconv.Itoa(i), 5, time.Hour)
		take(t, both, one)
		take(t, single[i%2], one)
		one.Cost = 4
		if d := take(t, both, one)[0]; d.Allowed || d.Remaining != 3 {
			t.Errorf("Take of 4 = %+v, want a denial and 3 remaining", d)
		}
		one.Cost = 3
		if d := take(t, both, one)[0]; !d.Allowed || d.Remaining != 0 {
			t.Errorf("Take of 3 = %+v, want 0 remaining", d)
		}
		if err := both.Reset(t.Context(), one); err != nil {
			t.Error(err)
		}
		one.Cost = 0
		for j, s := range single {
			if d := take(t, s, one)[0]; d.Remaining != 5 {
				t.Errorf("secret %d: %+v after Reset, want 5 remaining", j, d)
			}
		}
	}
	leased := charge("leased", "key", 100, time.Hour)
	leased.Lease = window.Lease{Units: 10, TTL: time.Minute}
	for range 5 {
		take(t, both, leased)
	}
	if n := redis.Leases(both).Left(); n > 0 {
		t.Errorf("%d units are leased, booked at two times", n)
	}
}
