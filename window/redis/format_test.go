package redis_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
)

var writeFormat = flag.Bool("redis.write-format", false, "write keys as they are now to testdata")

// inFormat are counters, of which a fixture holds the keys.
var inFormat = []struct {
	name   string
	charge window.Charge
	fill   func(f *formatTest)
}{
	{"zset", window.Charge{Algorithm: window.Zset{}}, (*formatTest).some},
	{"log of one chunk", window.Charge{Algorithm: window.Log{}}, (*formatTest).some},
	{"log of one record", window.Charge{Algorithm: window.Log{}}, func(f *formatTest) { f.spend(1) }},
	{"log of many pages", window.Charge{Algorithm: window.Log{}}, (*formatTest).many},
	{"stream", window.Charge{Algorithm: window.Stream{}, Fields: []string{"user", "anna"}}, (*formatTest).some},
	{"stream of many", window.Charge{Algorithm: window.Stream{Keep: time.Hour}, Fields: []string{"user", "anna"}}, (*formatTest).many},
	{"slices", window.Charge{Algorithm: window.Slices{Count: 10}}, (*formatTest).some},
	{"adaptive slices", window.Charge{Algorithm: window.Slices{Min: 100 * time.Millisecond, Max: 3 * time.Second}}, (*formatTest).some},
	{"packed slices", window.Charge{Algorithm: window.Slices{Count: 3}, Pack: 1}, (*formatTest).some},
	{"layers", window.Charge{Algorithm: window.Layers{Coarse: time.Second, Fine: 100 * time.Millisecond}}, (*formatTest).some},
	{"gcra", window.Charge{Algorithm: window.GCRA{}}, (*formatTest).some},
	{"packed gcra", window.Charge{Algorithm: window.GCRA{Burst: 300}, Pack: 1}, (*formatTest).some},
}

// formatTest writes one counter.
type formatTest struct {
	*testing.T
	store  *redis.Store
	clock  *windowtest.Clock
	charge window.Charge
	spent  []int64
}

func (f *formatTest) spend(cost int64) {
	c := f.charge
	c.Cost = cost
	if ds := take(f.T, f.store, c); window.Allowed(ds) {
		f.spent = append(f.spent, ds[0].At)
	}
}

func (f *formatTest) giveBack(i int, n int64) {
	if err := f.store.GiveBack(f.Context(), f.charge, f.spent[i], n); err != nil {
		f.Fatal(err)
	}
}

// some spends now and then, and gives back a little.
func (f *formatTest) some() {
	for i := range int64(60) {
		f.clock.Add(i * 7 % 400)
		f.spend(1 + i*i%12)
	}
	f.giveBack(50, 2)
	f.giveBack(59, 1)
}

// many has numbers of all lengths, and gives back far before the end.
func (f *formatTest) many() {
	for i := range int64(700) {
		f.clock.Add(1 + i*i%70)
		f.spend(1 + i%40/39*i)
	}
	for i := range 40 {
		f.giveBack(300+7*i, 1)
	}
	f.clock.Add(200)
	f.spend(3)
}

// kept is what a fixture holds of a counter: commands that write it, when it is asked, and
// what is decided then.
type kept struct {
	Name     string
	Commands [][][]byte
	Now      int64
	Want     []string
}

// keep returns the key as commands.
func keep(t *testing.T, c *goredis.Client, key string) (commands [][][]byte) {
	t.Helper()
	add := func(words ...any) {
		var command [][]byte
		for _, w := range words {
			command = append(command, fmt.Append(nil, w))
		}
		commands = append(commands, command)
	}
	ctx := t.Context()
	switch kind := c.Type(ctx, key).Val(); kind {
	case "string":
		add("SET", "", c.Get(ctx, key).Val())
	case "hash":
		all := c.HGetAll(ctx, key).Val()
		var names []string
		for name := range all {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			add("HSET", "", name, all[name])
		}
	case "zset":
		for i, z := range c.ZRangeWithScores(ctx, key, 0, -1).Val() { // names differ each time
			add("ZADD", "", strconv.FormatFloat(z.Score, 'f', -1, 64), fmt.Sprint("member.", i))
		}
	case "stream":
		raw, err := c.Do(ctx, "XRANGE", key, "-", "+").Slice()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range raw {
			entry := r.([]any)
			add(append([]any{"XADD", "", entry[0]}, entry[1].([]any)...)...)
		}
	default:
		t.Fatalf("%s is a %s", key, kind)
	}
	return commands
}

// ask returns what is decided on a counter, one request after the other.
func (f *formatTest) ask() (answers []string) {
	two := f.charge
	if two.Pack == 0 {
		two.Policies = append(slices.Clone(two.Policies), window.Policy{Limit: 90, Window: 1_500 * time.Millisecond})
	}
	for _, cost := range []int64{0, 1, 5, 40, 100_000} {
		two.Cost = cost
		answers = append(answers, fmt.Sprintf("%+v", take(f.T, f.store, two)))
		f.clock.Add(90)
	}
	return answers
}

// TestFormat decides on keys that an earlier build has written in this format, and holds
// that this one writes the same.
func TestFormat(t *testing.T) {
	name := "testdata/format-" + strings.TrimSuffix(naming.Format, "-") + ".jsonl"
	c := server.Client(t)
	open := func(t *testing.T, clock *windowtest.Clock, charge window.Charge) (*formatTest, string) {
		o := redis.Options{Addresses: []string{server.Addr}, Now: clock.Now, Prefix: freshPrefix("format"), Timeout: patience}
		charge.Zone, charge.Key, charge.Policies = "zone", "key", []window.Policy{{Limit: 2_000, Window: 20 * time.Second}}
		f := &formatTest{T: t, store: redis.AskAlways(newStore(t, o)), clock: clock, charge: charge}
		return f, string(newNaming(o).AppendKey(nil, &charge))
	}
	var written []kept
	for _, test := range inFormat {
		clock := windowtest.NewClock()
		f, key := open(t, clock, test.charge)
		test.fill(f)
		k := kept{Name: test.name, Commands: keep(t, c, key), Now: clock.Now()}
		k.Want = f.ask()
		written = append(written, k)
	}
	if *writeFormat {
		var text []byte
		for _, k := range written {
			line, err := json.Marshal(k)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, line...), '\n')
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v: this is a new format; write its keys with -redis.write-format, and keep those of the others", err)
	}
	var fixture []kept
	for line := range bytes.Lines(text) {
		var k kept
		if err := json.Unmarshal(line, &k); err != nil {
			t.Fatal(err)
		}
		fixture = append(fixture, k)
	}
	const advice = "other builds use these keys; raise format in name.go, so that counters start afresh, " +
		"or, if each build decides on keys of the other, write the fixture anew with -redis.write-format"
	for i, test := range inFormat {
		t.Run(test.name, func(t *testing.T) {
			k := slices.IndexFunc(fixture, func(k kept) bool { return k.Name == test.name })
			if k < 0 {
				t.Fatalf("%s does not hold it: write it anew with -redis.write-format", name)
			}
			before := fixture[k]
			same := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
			if !slices.EqualFunc(written[i].Commands, before.Commands, same) {
				t.Errorf("the key is written otherwise than in format %s: %s", naming.Format, advice)
			}
			clock := windowtest.NewClock()
			clock.Set(before.Now)
			f, key := open(t, clock, test.charge)
			for _, words := range before.Commands {
				var command []any
				for _, w := range words {
					command = append(command, w)
				}
				command[1] = key
				if err := c.Do(t.Context(), command...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			c.PExpireAt(t.Context(), key, time.UnixMilli(before.Now+3_600_000))
			if got := f.ask(); !slices.Equal(got, before.Want) {
				t.Errorf("decisions on a key of format %s are\n%q, and were\n%q: %s", naming.Format, got, before.Want, advice)
			}
		})
	}
}
