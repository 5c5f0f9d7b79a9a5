package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

func nativeCharge(key string, cost int64, a window.GCRA, p window.Policy) window.Charge {
	if a.Native == window.NativeOff {
		a.Native = window.NativeAuto
	}
	return window.Charge{Zone: "zone", Key: key, Cost: cost, Algorithm: a, Policies: []window.Policy{p}}
}

func ceilSeconds(d time.Duration) int64 {
	if d == window.Never {
		return -1
	}
	return int64((d + time.Second - 1) / time.Second)
}

// cell is a server that answers CL.THROTTLE out of a store in memory.
func cell(t *testing.T, clock *windowtest.Clock) (addr string, asked *atomic.Int64) {
	m := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	t.Cleanup(func() { _ = m.Close() })
	asked = new(atomic.Int64)
	return fakeServer(t, func(args []string) string {
		if args[0] == "evalsha" && args[5] == "reset" {
			if err := m.Reset(t.Context(), window.Charge{Key: args[3], Algorithm: window.GCRA{}}); err != nil {
				return "-ERR " + err.Error()
			}
			return integers(0)
		}
		if args[0] != "cl.throttle" {
			return "-ERR unexpected " + args[0]
		}
		asked.Add(1)
		var n [4]int64
		for i := range n {
			n[i], _ = strconv.ParseInt(args[2+i], 10, 64)
		}
		ds, err := m.Take(t.Context(), []window.Charge{{
			Key: args[1], Cost: n[3], Algorithm: window.GCRA{Burst: n[0] + 1},
			Policies: []window.Policy{{Limit: n[1], Window: time.Duration(n[2]) * time.Second}},
		}})
		if err != nil {
			return "-ERR " + err.Error()
		}
		if d := ds[0]; !d.Allowed {
			return integers(1, d.Limit, d.Remaining, ceilSeconds(d.RetryAfter), ceilSeconds(d.ResetAfter))
		}
		return integers(0, ds[0].Limit, ds[0].Remaining, -1, ceilSeconds(ds[0].ResetAfter))
	}), asked
}

// TestNativeDecisions compares decisions by CL.THROTTLE with those of the store in
// memory: the same, but for the rest of a second.
func TestNativeDecisions(t *testing.T) {
	clock := windowtest.NewClock()
	addr, asked := cell(t, clock)
	s := redis.AskAlways(newStore(t, redis.Options{Addresses: []string{addr}}))
	m := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	defer func() { _ = m.Close() }()
	r := rand.New(rand.NewPCG(1, 2))
	denials := 0
	for walk := range 20 {
		algo := window.GCRA{Burst: r.Int64N(2) * (1 + r.Int64N(20)), Native: window.Native(1 + r.IntN(2))}
		length := 1 + r.Int64N(30)
		policy := window.Policy{Window: time.Duration(length) * time.Second}
		for policy.Limit = 1 + r.Int64N(20); length*1_000%policy.Limit != 0; {
			policy.Limit--
		}
		for step := range 150 {
			clock.Add(r.Int64N(1 + r.Int64N(3_000)))
			c := nativeCharge(strconv.Itoa(walk), r.Int64N(1+r.Int64N(25)), algo, policy)
			name := fmt.Sprintf("walk %d, step %d, %+v", walk, step, c)
			op := r.IntN(20)
			var got, want []window.Decision
			var err, wantErr error
			switch {
			case op == 0:
				if err := errors.Join(s.Reset(t.Context(), c), m.Reset(t.Context(), c)); err != nil {
					t.Fatal(err)
				}
				continue
			case op < 5:
				got, err = s.Peek(t.Context(), []window.Charge{c})
				want, wantErr = m.Peek(t.Context(), []window.Charge{c})
			case op < 8:
				rs := s.TakeBatch(t.Context(), [][]window.Charge{{c}})
				got, err = rs[0].Decisions, rs[0].Err
				want, wantErr = m.Take(t.Context(), []window.Charge{c})
			default:
				got, err = s.Take(t.Context(), []window.Charge{c})
				want, wantErr = m.Take(t.Context(), []window.Charge{c})
			}
			if err != nil || wantErr != nil {
				t.Fatalf("%s: %v, %v", name, err, wantErr)
			}
			g, w := got[0], want[0]
			if !w.Allowed {
				denials++
			}
			late := func(g, w time.Duration) bool { return g >= w && (g == w || g < w+time.Second) }
			if g.Allowed != w.Allowed || g.Limit != w.Limit || g.Remaining != w.Remaining || g.At != 0 ||
				!late(g.RetryAfter, w.RetryAfter) || !late(g.ResetAfter, w.ResetAfter) || !late(g.EffectiveWindow, w.EffectiveWindow) ||
				!g.Allowed && g.EffectiveWindow > g.RetryAfter {
				t.Fatalf("%s: %+v, want %+v or up to a second more", name, g, w)
			}
		}
	}
	if asked.Load() < 2_500 || denials < 300 {
		t.Errorf("CL.THROTTLE was asked %d times, with %d denials; want more", asked.Load(), denials)
	}
	t.Logf("CL.THROTTLE was asked %d times, %d denials", asked.Load(), denials)
}

// TestNativeUnknown meets servers without the command, in the words that they have
// for it: auto asks once, on says what is missing.
func TestNativeUnknown(t *testing.T) {
	policy := window.Policy{Limit: 10, Window: time.Second}
	for _, c := range []struct {
		words  string
		script bool // decides instead
	}{
		{"ERR unknown command 'cl.throttle', with args beginning with: 'secret' '9' ", true}, // Redis 7, Valkey
		{"ERR unknown command `cl.throttle`, with args beginning with: `secret`, `9`, ", true},
		{"ERR unknown command `CL.THROTTLE`", true}, // Dragonfly
		{"ERR Unknown Command: cl.throttle", true},
		{"NOPERM this user has no permissions to run the 'cl.throttle' command", true},
		{"ERR Protocol error", false},
		{"WRONGTYPE", false},
	} {
		var asked, ran atomic.Int64
		addr := fakeServer(t, func(args []string) string {
			if args[0] == "cl.throttle" {
				asked.Add(1)
				return "-" + c.words
			}
			ran.Add(1)
			return integers(windowtest.Start, -4, 9, 100, 100)
		})
		clock := windowtest.NewClock()
		s := newStore(t, redis.Options{Addresses: []string{addr}, Now: clock.Now})
		one := nativeCharge("secret", 1, window.GCRA{}, policy)
		for range 3 {
			ds, err := s.Take(t.Context(), []window.Charge{one})
			if c.script && (err != nil || ds[0].Remaining != 9 || ds[0].At != windowtest.Start) {
				t.Errorf("%s: Take = %+v, %v, want the script to decide", c.words, ds, err)
			}
			if !c.script && (!errors.Is(err, window.ErrUnavailable) || !strings.Contains(err.Error(), c.words)) {
				t.Errorf("%s: Take = %v, want ErrUnavailable", c.words, err)
			}
		}
		if c.script && (asked.Load() != 1 || ran.Load() != 3) {
			t.Errorf("%s: CL.THROTTLE was asked %d times, the script %d times; want 1 and 3", c.words, asked.Load(), ran.Load())
		}
		clock.Add(59_999)
		_, _ = s.Take(t.Context(), []window.Charge{one})
		clock.Add(1) // the server may have got it
		_, _ = s.Take(t.Context(), []window.Charge{one})
		if c.script && asked.Load() != 2 {
			t.Errorf("%s: CL.THROTTLE was asked %d times in a minute and after it, want 2", c.words, asked.Load())
		}
		asked.Store(0)
		ran.Store(0)
		one.Algorithm = window.GCRA{Native: window.NativeOn}
		for range 3 {
			_, err := s.Take(t.Context(), []window.Charge{one})
			if !errors.Is(err, window.ErrUnavailable) || c.script && !strings.Contains(err.Error(), "no command CL.THROTTLE") {
				t.Errorf("%s: on: Take = %v, want ErrUnavailable", c.words, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: on: the error holds the key: %v", c.words, err)
			}
		}
		if asked.Load() != 3 || ran.Load() != 0 {
			t.Errorf("%s: on: CL.THROTTLE was asked %d times, the script %d times; want 3 and 0", c.words, asked.Load(), ran.Load())
		}
	}
	for _, reply := range []string{integers(0, 10, 9, -1), integers(), integers(0, 10, 9, -1, 1, 1), "+OK", "*5\r\n:0\r\n:1\r\n:2\r\n:3\r\n$1\r\nx"} {
		s := newStore(t, redis.Options{Addresses: []string{fakeServer(t, func([]string) string { return reply })}})
		if _, err := s.Take(t.Context(), []window.Charge{nativeCharge("key", 1, window.GCRA{}, policy)}); !errors.Is(err, window.ErrUnavailable) {
			t.Errorf("reply %q: Take = %v, want ErrUnavailable", reply, err)
		}
	}
}

// TestNativeThenLost has a server without the command hang when the script is to decide instead: it
// may have charged the request.
func TestNativeThenLost(t *testing.T) {
	end := make(chan struct{})
	addr := fakeServer(t, func(args []string) string {
		if args[0] != "cl.throttle" {
			<-end
		}
		return "-ERR unknown command"
	})
	defer close(end)
	s := newStore(t, redis.Options{Addresses: []string{addr}, Timeout: timeout})
	_, err := s.Take(t.Context(), []window.Charge{nativeCharge("key", 1, window.GCRA{}, window.Policy{Limit: 10, Window: time.Second})})
	wantUnknown(t, "no answer of the script after CL.THROTTLE is refused", true, err)
}

// TestNativePing holds that a server without the command is away for those who
// insist on it, until it has it.
func TestNativePing(t *testing.T) {
	var lacks atomic.Bool
	addr := fakeServer(t, func(args []string) string {
		switch {
		case args[0] != "cl.throttle":
			return integers(windowtest.Start, 0)
		case lacks.Load():
			return "-ERR unknown command 'cl.throttle', with args beginning with: "
		}
		return integers(0, 1, 1, -1, 0)
	})
	s := newStore(t, redis.Options{Addresses: []string{addr}})
	insists := nativeCharge("key", 1, window.GCRA{Native: window.NativeOn}, window.Policy{Limit: 1, Window: time.Second})
	for round := range 2 {
		lacks.Store(true)
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("round %d: Ping before anyone asked = %v", round, err)
		}
		if _, err := s.Take(t.Context(), []window.Charge{insists}); err == nil {
			t.Errorf("round %d: Take without the command passes", round)
		}
		if err := s.Ping(t.Context()); !errors.Is(err, window.ErrUnavailable) {
			t.Errorf("round %d: Ping without the command = %v, want ErrUnavailable", round, err)
		}
		lacks.Store(false)
		if err := s.Ping(t.Context()); err != nil {
			t.Errorf("round %d: Ping with the command = %v", round, err)
		}
	}
}

// TestNativeTogether makes requests go together as soon as the server is known not to
// have the command.
func TestNativeTogether(t *testing.T) {
	addr, asked := countingProxy(t, server.Addr, calls("evalsha"))
	s := redis.AskAlways(newStore(t, redis.Options{Addresses: []string{addr}}))
	request := func(i int) []window.Charge {
		return []window.Charge{nativeCharge(strconv.Itoa(i), 1, window.GCRA{Native: window.NativeAuto}, window.Policy{Limit: 100, Window: time.Second})}
	}
	take(t, s, request(0)...)
	before := asked.Load()
	var requests [][]window.Charge
	for i := range 50 {
		requests = append(requests, request(i))
	}
	for i, r := range s.TakeBatch(t.Context(), requests) {
		if r.Err != nil || !r.Decisions[0].Allowed {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("%d calls of the script for 50 requests, want 1", n)
	}
}

// TestNativeOnRedis has a server without the command: it is asked once, and the
// script goes on as if nothing had been.
func TestNativeOnRedis(t *testing.T) {
	addr, asked := countingProxy(t, server.Addr, calls("cl.throttle"))
	clock := windowtest.NewClock()
	s := redis.AskAlways(newStore(t, redis.Options{Addresses: []string{addr}, Now: clock.Now, Prefix: "noncell"}))
	m := memory.New(memory.Options{SweepInterval: -1, Now: clock.Now})
	defer func() { _ = m.Close() }()
	r := rand.New(rand.NewPCG(1, 2))
	for step := range 300 {
		clock.Add(r.Int64N(300)) // less than a minute in all
		c := nativeCharge(strconv.Itoa(r.IntN(3)), r.Int64N(4), window.GCRA{Burst: 6}, window.Policy{Limit: 4, Window: 2 * time.Second})
		other := charge("zset", strconv.Itoa(r.IntN(3)), 5, time.Second)
		requests := [][]window.Charge{{c}, {other}, {c}}
		got, want := s.TakeBatch(t.Context(), requests), m.TakeBatch(t.Context(), requests)
		for i := range requests {
			if got[i].Err != nil || !slices.Equal(got[i].Decisions, want[i].Decisions) {
				t.Fatalf("step %d, request %d: %+v, want %+v", step, i, got[i], want[i])
			}
		}
		if step%50 == 49 {
			if err := errors.Join(s.Reset(t.Context(), c), m.Reset(t.Context(), c)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := asked.Load(); n != 2 { // twice in the first batch
		t.Errorf("CL.THROTTLE was asked %d times, want 2", n)
	}
	parallel(16, func(i int) {
		for range 20 {
			take(t, s, nativeCharge(strconv.Itoa(i), 1, window.GCRA{}, window.Policy{Limit: 100, Window: time.Second}))
		}
	})
	if n := asked.Load(); n != 2 {
		t.Errorf("CL.THROTTLE was asked %d times, want no more than 2", n)
	}
	if found := keys(t, server.Client(t), "noncell:2-native-*"); len(found) > 0 {
		t.Errorf("keys %q, want none", found)
	}
}

// testClusterNative asks each node once.
func testClusterNative(t *testing.T, s *redis.Store, nodes []*redistest.Server) {
	unknown := func(i int) (n int) {
		text := nodes[i].Client(t).Info(t.Context(), "errorstats").Val()
		if _, rest, ok := strings.Cut(text, "errorstat_ERR:count="); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
		return n
	}
	var before [3]int
	for i := range nodes {
		before[i] = unknown(i)
	}
	for round := range int64(3) {
		for i := range 60 {
			d := take(t, s, nativeCharge(strconv.Itoa(i), 1, window.GCRA{}, window.Policy{Limit: 5, Window: time.Hour}))[0]
			if !d.Allowed || d.Remaining != 4-round {
				t.Fatalf("round %d, key %d: Take = %+v, want %d remaining", round, i, d, 4-round)
			}
		}
	}
	for i := range nodes {
		if n := unknown(i) - before[i]; n != 1 {
			t.Errorf("node %d was asked for CL.THROTTLE %d times, want once", i, n)
		}
	}
	if err := s.Reset(t.Context(), nativeCharge("1", 1, window.GCRA{}, window.Policy{})); err != nil {
		t.Errorf("Reset = %v", err)
	}
}
