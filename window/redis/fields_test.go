package redis_test

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// TestLayersFieldsRead watches which fields of a minute's hash the server is asked
// for: the number that FieldsRead says, 16 at most, and none twice.
func TestLayersFieldsRead(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now}), own.Client(t)
	asked := monitor(t, own.Addr)
	one := charge("zone", "key", 1_000_000, time.Minute)
	one.Algorithm = window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
	kept := windowtest.Kept{Algorithm: one.Algorithm}
	echo := func() {
		t.Helper()
		if err := c.Echo(t.Context(), "done").Err(); err != nil {
			t.Fatal(err)
		}
	}
	take(t, s, charge("other", "key", 1, time.Minute)) // connect, and load the script
	echo()
	for asked()[0] != "echo" {
	}
	most := 0
	for step := range 3_000 {
		clock.Add(83)
		switch step {
		case 1_000:
			clock.Add(9_999 - clock.Now()%10_000) // the window begins with a coarse slice
		case 2_000:
			clock.Add(40_000)
		}
		want := window.FactsOf(one.Algorithm).FieldsRead(kept.History, clock.Now(), &one)
		take(t, s, one)
		kept.Decide(clock.Now(), one, true)
		echo()
		fields := make(map[string]bool)
		reads := 0
		for command := asked(); command[0] != "echo"; command = asked() {
			switch strings.ToUpper(command[0]) {
			case "HMGET":
				for _, field := range command[2:] {
					reads++
					fields[field] = true
				}
			case "HSET", "HDEL", "HLEN", "PEXPIREAT", "EVALSHA":
			default:
				t.Fatalf("step %d: %v", step, command)
			}
		}
		if reads != want || len(fields) != want {
			t.Fatalf("step %d: %d fields read, %d of them different, want %d", step, reads, len(fields), want)
		}
		most = max(most, reads)
	}
	if most != 17 {
		t.Errorf("%d fields read at most, want 17", most)
	}
}

// TestLayersGiveBackReadsFew watches what the server is asked for when units are given back: few
// fields, unless the layers have got other lengths, of either kind. Then all is written anew.
func TestLayersGiveBackReadsFew(t *testing.T) {
	own, clock := redistest.Start(t), windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Now: clock.Now}), own.Client(t)
	asked := monitor(t, own.Addr)
	one := charge("zone", "key", 1_000_000, time.Minute)
	one.Algorithm = window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
	var spent []int64
	for range 700 {
		clock.Add(83)
		spent = append(spent, take(t, s, one)[0].At)
	}
	for _, test := range []struct {
		coarse, fine time.Duration
		all          bool
	}{
		{10 * time.Second, time.Second, false},
		{10 * time.Second, 2 * time.Second, true},
		{10 * time.Second, 2 * time.Second, false},
		{20 * time.Second, 2 * time.Second, true},
		{20 * time.Second, 2 * time.Second, false},
	} {
		if err := c.Echo(t.Context(), "begin").Err(); err != nil {
			t.Fatal(err)
		}
		for asked()[0] != "echo" {
		}
		one.Algorithm = window.Layers{Coarse: test.coarse, Fine: test.fine}
		if err := s.GiveBack(t.Context(), one, spent[len(spent)-1], 1); err != nil {
			t.Fatal(err)
		}
		spent = spent[:len(spent)-1]
		if n := charged(t, s, one); n != int64(len(spent)) {
			t.Errorf("%+v: %d units are left, want %d", one.Algorithm, n, len(spent))
		}
		if err := c.Echo(t.Context(), "end").Err(); err != nil {
			t.Fatal(err)
		}
		all := false
		for command := asked(); command[0] != "echo"; command = asked() {
			all = all || strings.EqualFold(command[0], "HGETALL") || len(command) > 22
		}
		if all != test.all {
			t.Errorf("%+v: all was read: %v, want %v", one.Algorithm, all, test.all)
		}
	}
}

// monitor returns a function that returns the next command that a server runs.
func monitor(t *testing.T, address string) func() []string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	quoted := regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	next := func() []string {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("MONITOR: %v", lines.Err())
		}
		var words []string
		for _, m := range quoted.FindAllStringSubmatch(lines.Text(), -1) {
			words = append(words, m[1])
		}
		return words
	}
	next() // OK
	return next
}

// TestLayersMemory holds the number of fields that layers need at most, through
// pauses, shorter and longer windows, and a clock that steps back.
func TestLayersMemory(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "layers"}), server.Client(t)
	one := charge("zone", "key", 1_000_000, time.Minute)
	one.Algorithm = window.Layers{Coarse: 10 * time.Second, Fine: time.Second}
	var most int64
	for step := range 4_000 {
		clock.Add(91)
		switch step % 2_000 {
		case 100:
			clock.Add(500_000)
		case 1_300:
			clock.Add(35_000)
		case 1_600:
			clock.Add(500_000)
		case 1_700:
			clock.Add(-7_000)
		case 1_750:
			clock.Add(-700_000)
		case 1_800:
			one.Policies = []window.Policy{{Limit: 1_000_000, Window: 20 * time.Second}}
		case 1_900:
			one.Policies = []window.Policy{{Limit: 1_000_000, Window: time.Minute}}
		}
		take(t, s, one)
		most = max(most, c.HLen(t.Context(), "layers:2-layers:zone:key").Val())
	}
	if most != 60+6+2 {
		t.Errorf("%d fields at most, want 60 fine, 6 coarse, the open ones and the history", most)
	}
}

// TestAdaptiveFieldsRead holds that the hash of adaptive slices has the number of fields
// that FieldsRead says, and at low traffic at most a quarter of those at the finest.
func TestAdaptiveFieldsRead(t *testing.T) {
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Now: clock.Now, Prefix: "adaptive"}), server.Client(t)
	one := charge("zone", "key", 1_000, 20*time.Second)
	one.Algorithm = window.Slices{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	kept := windowtest.Kept{Algorithm: one.Algorithm}
	traffic := func(every, times int64) int64 {
		var most int64
		for range times {
			clock.Add(every)
			if window.Allowed(take(t, s, one)) {
				kept.Decide(clock.Now(), one, true)
			}
			n := c.HLen(t.Context(), "adaptive:2-slices:zone:key").Val() - 1 // w
			if want := int64(window.FactsOf(one.Algorithm).FieldsRead(kept.History, clock.Now(), &one)); n != want {
				t.Fatalf("%d fields, FieldsRead says %d", n, want)
			}
			most = max(most, n)
		}
		return most
	}
	for range 2 {
		traffic(100, 200)
		low := traffic(100, 200)
		high := traffic(17, 3_000)
		t.Logf("%d fields at low traffic, %d at high", low, high)
		if 4*low > high {
			t.Errorf("%d fields at low traffic, %d at high; want a quarter at most", low, high)
		}
	}
}
