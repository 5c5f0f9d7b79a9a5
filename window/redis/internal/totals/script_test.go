package totals

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/lua"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
)

var replayed = flag.Int("totals.replayed", 100, "how many schedules TestModelIsScript plays to Redis")

var scriptSHA = func() string {
	sum := sha1.Sum([]byte(lua.Script))
	return hex.EncodeToString(sum[:])
}()

// plan writes values in MessagePack, as ARGV[4] of lua/driver.lua.
func plan(values ...any) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0xdd}, uint32(len(values)))
	for _, v := range values {
		switch v := v.(type) {
		case string:
			b = append(append(b, 0xa0|byte(len(v))), v...)
		case int64:
			b = binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
		}
	}
	return b
}

// TestModelIsScript plays the messages of schedules to Redis, at the times of the model. All replies and fields of counters
// have to be those of the model.
func TestModelIsScript(t *testing.T) {
	client := redistest.Start(t).Client(t)
	if err := client.ScriptLoad(t.Context(), lua.Script).Err(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for n := range *replayed {
		if t.Failed() {
			return
		}
		calls += replay(t, client, n)
	}
	t.Logf("%d calls", calls)
}

func replay(t *testing.T, client *goredis.Client, n int) int {
	const ahead = 3_600_000_000_000 // so that the server forgets nothing
	w := newWorld(t, *seed, n)
	w.forever = true
	var all []call
	w.record = func(c call) { all = append(all, c) }
	w.run()
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	pipe := client.Pipeline()
	var replies []*goredis.Cmd
	var expiries []*goredis.DurationCmd
	var hashes []*goredis.MapStringStringCmd
	for i := range all {
		c := &all[i]
		if c.loses {
			pipe.FlushAll(t.Context())
			for key, k := range c.state {
				for process, f := range k.fields {
					pipe.HSet(t.Context(), key, process, plan(f.counted, f.exact, f.given, f.back, f.at+ahead, f.lease, f.since+ahead)[5:])
				}
				pipe.PExpireAt(t.Context(), key, time.UnixMilli(k.expires+ahead))
			}
			replies, expiries, hashes = append(replies, nil), append(expiries, nil), append(hashes, nil)
			continue
		}
		op, values := "take", []any{int64(1), int64(7), "concurrent", int64(0), c.lease, int64(1), c.limit, c.lease, c.process,
			int64(-1), int64(1), c.cost, c.m.Number, c.m.Given, c.m.Back}
		if !c.take {
			op, values = "settle_each", append(values, c.age, c.heard)
		}
		replies = append(replies, pipe.EvalSha(t.Context(), scriptSHA, []string{c.key}, c.now+ahead, op, "id", plan(values...)))
		hashes = append(hashes, pipe.HGetAll(t.Context(), c.key))
		expiries = append(expiries, pipe.PExpireTime(t.Context(), c.key))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatalf("%s: %v", w.name, err)
	}
	for i := range all {
		c := &all[i]
		if c.loses {
			continue
		}
		want := []any{c.now + ahead, c.reply}
		if c.take {
			retry := int64(0)
			if !c.allowed && c.cost > c.limit {
				retry = -1
			}
			want = []any{c.now + ahead, int64(-5), int64(0), c.remaining, retry, int64(0), int64(0)}
			if c.allowed {
				want[2] = int64(1)
			}
		}
		if got := replies[i].Val(); !slices.Equal(got.([]any), want) {
			t.Errorf("%s: call %d, %+v: Redis answers %v, want %v", w.name, i, *c, got, want)
			return i
		}
		fields := map[string]field{}
		for process, value := range hashes[i].Val() {
			n, ok := resp.Integers(value)
			if !ok || len(n) != 7 {
				t.Fatalf("%s: call %d: %q", w.name, i, value)
			}
			fields[process] = field{n[0], n[1], n[2], n[3], n[4] - ahead, n[5], n[6] - ahead}
		}
		if !maps.Equal(fields, c.after) {
			t.Errorf("%s: call %d, %+v: Redis has %+v", w.name, i, *c, fields)
			return i
		}
		if got := expiries[i].Val().Milliseconds() - ahead; c.expires > 0 && got != c.expires {
			t.Errorf("%s: call %d, %+v: the key expires at %d", w.name, i, *c, got)
			return i
		}
	}
	return len(all)
}
