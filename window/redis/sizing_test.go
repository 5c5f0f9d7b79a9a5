package redis_test

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
)

// Columns of the table in docs/redis.md.
var sizingLimits = []int64{10, 100, 1_000, 10_000}

// TestSizing holds the table of docs/redis.md: what 100,000 keys take whose limit is
// used up, evenly over a window of an hour. A failure prints the table as measured.
func TestSizing(t *testing.T) {
	const tolerance = 0.1
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "<!-- sizing -->\n")
	table, _, _ = strings.Cut(table, "<!-- /sizing -->")
	documented := make(map[string][]string)
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		documented[strings.Trim(cells[0], "`")] = cells[1:]
	}

	own := redistest.Start(t)
	overhead := sizeOverhead(t, own)
	var measured strings.Builder
	for _, row := range []struct {
		name      string
		algorithm window.Algorithm
		pack      int64
		// How many requests use a limit up at most: what counts units does not grow
		// with requests.
		requests int64
	}{
		{"zset", window.Zset{}, 0, math.MaxInt64},
		{"log", window.Log{}, 0, math.MaxInt64},
		{"stream", window.Stream{}, 0, math.MaxInt64},
		{"slices", window.Slices{}, 0, 240},
		{"slices { layers 10m 1m }", window.Layers{Coarse: 10 * time.Minute, Fine: time.Minute}, 0, 240},
		{"gcra", window.GCRA{}, 0, 10},
		{"gcra, pack", window.GCRA{}, 100_000, 10},
	} {
		fmt.Fprintf(&measured, "| `%s` |", row.name)
		for i, limit := range sizingLimits {
			var bytes float64
			if row.pack > 0 {
				bytes = sizePacked(t, own, limit, row.pack, overhead)
			} else {
				bytes = sizeOfKey(t, own, row.algorithm, limit, min(limit, row.requests)) + overhead
			}
			megabytes := bytes * 100_000 / 1e6
			fmt.Fprintf(&measured, " %s |", shortNumber(megabytes))
			if i >= len(documented[row.name]) {
				t.Errorf("docs/redis.md says nothing of %s with a limit of %d", row.name, limit)
				continue
			}
			said, err := strconv.ParseFloat(strings.ReplaceAll(documented[row.name][i], ",", ""), 64)
			if err != nil || math.Abs(said-megabytes) > tolerance*megabytes {
				t.Errorf("%s with a limit of %d: docs/redis.md says %s MB, measured %.1f", row.name, limit, documented[row.name][i], megabytes)
			}
		}
		measured.WriteString("\n")
	}
	if t.Failed() {
		t.Logf("as measured:\n%s", measured.String())
	}
}

// sizeOfKey returns MEMORY USAGE of a key whose limit is used up.
func sizeOfKey(t *testing.T, own *redistest.Server, algorithm window.Algorithm, limit, requests int64) float64 {
	t.Helper()
	clock := windowtest.NewClock() // nothing expires
	s := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "sw", Now: clock.Now})
	one := charge("per_client", "203.0.113.77", limit, time.Hour)
	one.Algorithm = algorithm
	for i := range requests {
		one.Cost = limit*(i+1)/requests - limit*i/requests
		if !take(t, s, one)[0].Allowed {
			t.Fatalf("%s: request %d was denied", algorithm.Name(), i)
		}
		if i < requests-1 {
			clock.Add(time.Hour.Milliseconds() / requests)
		}
	}
	c := own.Client(t)
	all := keys(t, c, "sw:*")
	if len(all) != 1 {
		t.Fatalf("%s: %d keys, want 1", algorithm.Name(), len(all))
	}
	bytes := usage(t, c, all[0])
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return float64(bytes)
}

// sizeOverhead returns what a key takes beside its MEMORY USAGE: the table of keys, and
// that of when they expire.
func sizeOverhead(t *testing.T, own *redistest.Server) float64 {
	t.Helper()
	const n = 100_000
	all, c := sizeOfMany(t, own, n, 10, 0), own.Client(t)
	bytes := usage(t, c, keys(t, c, "sw:*")[0])
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return all/n - float64(bytes)
}

// sizePacked returns what each of n packed keys takes: a share of the hashes, which have
// an overhead each.
func sizePacked(t *testing.T, own *redistest.Server, limit, n int64, overhead float64) float64 {
	t.Helper()
	sizeOfMany(t, own, n, limit, n)
	c := own.Client(t)
	var all float64
	for _, hash := range keys(t, c, "sw:*") {
		all += float64(usage(t, c, hash)) + overhead
	}
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return all / float64(n)
}

// sizeOfMany returns the memory that n keys with gcra take.
func sizeOfMany(t *testing.T, own *redistest.Server, n, limit, pack int64) float64 {
	t.Helper()
	clock := windowtest.NewClock()
	s, c := newStore(t, redis.Options{Addresses: []string{own.Addr}, Prefix: "sw", Timeout: time.Minute, Now: clock.Now}), own.Client(t)
	before := keptMemory(t, c)
	takeAll(t, s, int(n), func(i int) window.Charge {
		one := packed("per_client", fmt.Sprintf("203.0.%03d.%02d", i/100%1000, i%100), pack, limit, time.Hour)
		one.Cost = limit
		return one
	})
	return float64(keptMemory(t, c) - before)
}

// keptMemory returns the memory of a server without the buffers of its clients.
func keptMemory(t *testing.T, c *goredis.Client) int64 {
	t.Helper()
	return usedMemory(t, c) - memoryInfo(t, c, "mem_clients_normal")
}

// shortNumber writes a number with two digits, or all before the point.
func shortNumber(x float64) string {
	text := strconv.FormatFloat(x, 'f', 0, 64)
	if x < 10 {
		text = strconv.FormatFloat(x, 'f', 1, 64)
	}
	if len(text) > 3 && !strings.Contains(text, ".") {
		text = text[:len(text)-3] + "," + text[len(text)-3:]
	}
	return text
}
