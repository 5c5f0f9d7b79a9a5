package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
)

const at = windowtest.Start

var oneName, twoNames = naming.New("sw", "", ""), naming.New("sw", "secret", "former")

// one is a request for a unit of a minute's limit of 10.
func one(key string) window.Charge { return windowtest.Charge("zone", key, 10, time.Minute) }

func with(c window.Charge, change func(*window.Charge)) window.Charge {
	c.Policies = slices.Clone(c.Policies)
	change(&c)
	return c
}

// unpack reads a list in MessagePack.
func unpack(t *testing.T, text string) (items []any) {
	t.Helper()
	take := func(n int) []byte { b := text[:n]; text = text[n:]; return []byte(b) }
	if take(1)[0] != 0xdd {
		t.Fatalf("%q is no list", text)
	}
	for range binary.BigEndian.Uint32(take(4)) {
		switch b := take(1)[0]; {
		case b < 1<<7:
			items = append(items, int64(b))
		case b >= 0xe0:
			items = append(items, int64(int8(b)))
		case b == 0xce:
			items = append(items, int64(binary.BigEndian.Uint32(take(4))))
		case b == 0xd3:
			items = append(items, int64(binary.BigEndian.Uint64(take(8))))
		case b == 0xdb:
			items = append(items, string(take(int(binary.BigEndian.Uint32(take(4))))))
		default:
			items = append(items, string(take(int(b&0x1f))))
		}
	}
	if text != "" {
		t.Errorf("%q comes after the list", text)
	}
	return items
}

// A call holds what the header of lua/driver.lua lists: units of one definition in groups in which no key comes twice, and all
// others apart.
func TestPlan(t *testing.T) {
	unit := one("a")
	costly := with(unit, func(c *window.Charge) { c.Cost = 3 })
	packed := with(unit, func(c *window.Charge) { c.Algorithm, c.Pack = window.GCRA{Burst: 2}, 100 })
	noted := with(unit, func(c *window.Charge) {
		c.Algorithm, c.Fields = window.Stream{}, []string{"path", strings.Repeat("x", 40)}
	})
	huge := with(unit, func(c *window.Charge) { c.Cost = window.MaxProduct + 1 })
	field := func(n []naming.Naming, i int) string { f := n[i].PackedField(&packed); return string(f[:]) }
	zset := []any{6, "zset", 0, 60_000, 1, 10, 60_000}
	stream := append([]any{6 + len(window.OptionsOf(noted.Algorithm)), "stream", 0, 60_000, 1, 10, 60_000}, ints(window.OptionsOf(noted.Algorithm))...)
	gcra := append([]any{6 + len(window.OptionsOf(packed.Algorithm)), "gcra", 1, 60_000, 1, 10, 60_000}, ints(window.OptionsOf(packed.Algorithm))...)
	for _, c := range []struct {
		what     string
		op       Op
		names    []naming.Naming
		requests [][]window.Charge
		numbers  []int64
		want     [][]any // definitions, and then requests
	}{
		{"units of other keys", Take, oneName, [][]window.Charge{{unit}, {one("b")}}, nil, [][]any{{1}, zset, {2, 1}}},
		{"units of one key", Take, oneName, [][]window.Charge{{unit}, {one("b")}, {unit}}, nil, [][]any{{1}, zset, {2, 1, 1, 1}}},
		{"units of one packed key", Take, oneName, [][]window.Charge{{packed}, {packed}}, nil, [][]any{{1}, gcra, {2, 1, field(oneName, 0), field(oneName, 0)}}},
		{"a cost between units", Take, oneName, [][]window.Charge{{unit}, {costly}, {one("b")}}, nil, [][]any{{1}, zset, {1, 1, -1, 1, 3, 1, 1}}},
		{"two charges", Peek, oneName, [][]window.Charge{{unit, packed}}, nil, [][]any{{2}, zset, gcra, {-2, 1, 1, 2, 1, field(oneName, 0)}}},
		{"two names", Take, twoNames, [][]window.Charge{{packed}}, nil, [][]any{{1}, gcra, {-2, 1, 1, field(twoNames, 0), 1, 1, field(twoNames, 1)}}},
		{"fields", Take, oneName, [][]window.Charge{{noted}}, nil, [][]any{{1}, stream, {-1, 1, 1, 2, "path", strings.Repeat("x", 40)}}},
		{"the largest cost", Take, oneName, [][]window.Charge{{huge}}, nil, [][]any{{1}, zset, {-1, 1, int64(window.MaxProduct + 2)}}},
		{"settlements under two names", Settle, twoNames, [][]window.Charge{{unit}}, []int64{5_000_000_000, -2}, [][]any{{1}, zset, {-1, 1, 1, int64(5_000_000_000), -2, -1, 1, 1, int64(5_000_000_000), -2}}},
		{"a reset", Reset, oneName, [][]window.Charge{{costly}}, nil, [][]any{{1}, zset, {-1, 1, 3}}},
	} {
		w := NewWriter(c.names, func() int64 { return at })
		call := w.Script(c.names, c.op, c.requests, c.numbers...)
		keys := call.args[2].(int)
		var want []any
		for i := range c.requests {
			for k := range c.names {
				for j := range c.requests[i] {
					want = append(want, string(c.names[k].AppendKey(nil, &c.requests[i][j])))
				}
			}
		}
		var got []any
		for _, a := range call.args[3:][:keys] {
			got = append(got, *a.(*string))
		}
		now, _ := call.args[3+keys].(*sent).MarshalBinary()
		if !slices.Equal(got, want) || call.Key != want[0] || call.args[0] != "evalsha" || *call.args[1].(*string) != scripts.Decide || string(now) != strconv.FormatInt(at, 10) || *call.args[4+keys].(*string) != string(c.op) {
			t.Errorf("%s: the call is of %q at %s, want %q", c.what, got, now, want)
		}
		if got, want := unpack(t, *call.args[6+keys].(*string)), wide(slices.Concat(c.want...)); !slices.Equal(got, want) {
			t.Errorf("%s: the plan is %v, want %v", c.what, got, want)
		}
	}
}

func ints(all []int64) (items []any) {
	for _, n := range all {
		items = append(items, n)
	}
	return items
}

// wide returns a list whose numbers are of 64 bits, as those of unpack on every platform.
func wide(items []any) []any {
	for i, item := range items {
		if n, ok := item.(int); ok {
			items[i] = int64(n)
		}
	}
	return items
}

// A call that is written again names other units, and holds nothing of what it held before.
func TestWriteAgain(t *testing.T) {
	w := NewWriter(oneName, nil)
	c := w.Script(oneName, Take, [][]window.Charge{{one("a")}, {one("b")}})
	id := *c.args[7].(*string)
	c.Reply, c.Err = []int64{1}, errors.New("failed")
	w.Write(c, Peek, [][]window.Charge{{one("c")}})
	if len(c.args) != 8 || *c.args[3].(*string) != "sw:2-zset:zone:c" || *c.args[6].(*string) == id || c.Reply != nil || c.Err != nil {
		t.Errorf("written again, the call is %v, after %q", c.args, id)
	}
	if now, _ := c.now.MarshalBinary(); len(now) > 0 {
		t.Errorf("the time is %s, want that of the server", now)
	}
}

// Each of two requests gets the decision of the script on it. A malformed reply fails both.
func TestAnswer(t *testing.T) {
	decided := func(d window.Decision) *window.Decision { d.Limit, d.At = 10, at; return &d }
	for _, c := range []struct {
		name   string
		answer []int64
		want   *window.Decision // nil: an error
		err    error            // of this request only
	}{
		{"short", []int64{7}, decided(window.Decision{Allowed: true, Remaining: 7, ResetAfter: time.Minute, EffectiveWindow: time.Minute}), nil},
		{"with times", []int64{-4, 7, 3_000, 2_000}, decided(window.Decision{Allowed: true, Remaining: 7, ResetAfter: 3 * time.Second, EffectiveWindow: 2 * time.Second}), nil},
		{"in full", []int64{-5, 0, 0, 1_000, 3_000, 2_000}, decided(window.Decision{RetryAfter: time.Second, ResetAfter: 3 * time.Second, EffectiveWindow: 2 * time.Second}), nil},
		{"never", []int64{-5, 0, 0, -1, 1 << 62, 0}, decided(window.Decision{RetryAfter: window.Never, ResetAfter: window.Never / time.Millisecond * time.Millisecond}), nil},
		{"undone", []int64{-1}, nil, failure.ErrUndone},
		{"uncertain", []int64{-2}, nil, failure.ErrUncertain},
		{"forbidden", []int64{-3}, nil, failure.ErrForbidden},
		{"unknown", []int64{-6}, nil, nil},
		{"more than the limit", []int64{11}, nil, nil},
		{"part of the times", []int64{-4, 7}, nil, nil},
		{"neither yes nor no", []int64{-5, 2, 0, 0, 0, 0}, nil, nil},
		{"nothing", nil, nil, nil},
		{"too much", []int64{7, 7}, nil, nil},
	} {
		call := &Call{Names: oneName, Op: Take, Requests: [][]window.Charge{{one("other")}, {one("key")}}, Reply: append([]int64{at, 5}, c.answer...)}
		results := make([]window.Result, 2)
		call.Answer(results)
		other, got := results[0], results[1]
		switch {
		case c.want != nil && (got.Err != nil || len(got.Decisions) != 1 || got.Decisions[0] != *c.want),
			c.err != nil && (got.Err != c.err || got.Decisions != nil), //nolint:errorlint // the very same
			c.want == nil && got.Err == nil:
			t.Errorf("%s: %+v, want %+v or %v", c.name, got, c.want, c.err)
		}
		if each := c.want != nil || c.err != nil; each != (other.Err == nil) || each && other.Decisions[0].Remaining != 5 {
			t.Errorf("%s: the other request gets %+v", c.name, other)
		}
	}
}

// Under two names, a decision is the stricter of both in everything.
func TestAnswerUnderTwoNames(t *testing.T) {
	call := &Call{Names: twoNames, Op: Take, Requests: [][]window.Charge{{one("key")}}, Reply: []int64{at, -5, 1, 4, 0, 9, 7, 0, 3, 5, 8, 6}}
	results := make([]window.Result, 1)
	call.Answer(results)
	want := window.Decision{Limit: 10, Remaining: 3, RetryAfter: 5 * time.Millisecond, ResetAfter: 9 * time.Millisecond, EffectiveWindow: 6 * time.Millisecond, At: at}
	if r := results[0]; r.Err != nil || r.Decisions[0] != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	d, other := window.Decision{Remaining: 3, EffectiveWindow: 5}, window.Decision{Remaining: 3, EffectiveWindow: 7}
	if Tighten(&d, &other); d.EffectiveWindow != 7 {
		t.Errorf("with as much left, the effective window is %d, want the longer", d.EffectiveWindow)
	}
}

// A settlement that is done under one name only is not to be done again.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		codes []int64
		want  error
	}{
		{[]int64{0, 0}, nil}, {[]int64{-1, -1}, failure.ErrUndone}, {[]int64{0, -1}, failure.ErrUncertain}, {[]int64{-1, 0}, failure.ErrUncertain},
		{[]int64{0, -2}, failure.ErrUncertain}, {[]int64{-3, -1}, failure.ErrForbidden},
	} {
		call := &Call{Names: twoNames, Op: Settle, Requests: [][]window.Charge{{one("a")}, {one("b")}}, Reply: append([]int64{at, 0, 0}, c.codes...)}
		if call.Verdict(0) != nil || call.Verdict(1) != c.want { //nolint:errorlint // the very same
			t.Errorf("%v: %v and %v, want %v", c.codes, call.Verdict(0), call.Verdict(1), c.want)
		}
	}
	for _, reply := range [][]int64{nil, {at, 0, 0, 0}, {at, 0, 0, 7, 0}} {
		call := &Call{Names: twoNames, Op: Settle, Requests: [][]window.Charge{{one("a")}, {one("b")}}, Reply: reply}
		if call.Verdict(1) == nil {
			t.Errorf("%v is a verdict", reply)
		}
	}
}

// CL.THROTTLE is asked as redis-cell documents, for no more than its limit, and its seconds are read as they are meant.
func TestThrottle(t *testing.T) {
	seconds := func(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
	w := NewWriter(naming.New("cell", "", ""), nil)
	for _, c := range windowtest.RedisCell {
		parts := strings.Fields(c.Command)
		limit := c.Policy.AtOnce(c.Algorithm)
		for i, row := range c.Rows {
			quantity, retry, limited := row.Cost, int64(-1), int64(0)
			if row.RetryAfter == window.Never {
				quantity = 0 // a cost above the limit is not asked for
			} else if row.RetryAfter > 0 {
				retry, limited = seconds(row.RetryAfter), 1
			}
			algo := c.Algorithm
			algo.Native = window.NativeAuto
			call := w.Throttle(Take, []window.Charge{{Zone: "zone", Key: parts[1], Cost: row.Cost, Algorithm: algo, Policies: []window.Policy{c.Policy}}})
			want := "cl.throttle cell:2-native-gcra:zone:" + parts[1] + " " + strings.Join(parts[2:], " ") + " " + strconv.FormatInt(quantity, 10)
			if got := strings.Trim(fmt.Sprint(call.args), "[]"); got != want {
				t.Errorf("asked %q, want %q", got, want)
			}
			call.Reply = []int64{limited, limit, row.Remaining, retry, seconds(row.ResetAfter)}
			results := make([]window.Result, 1)
			if call.Answer(results); results[0].Err != nil {
				t.Fatal(results[0].Err)
			}
			d := results[0].Decisions[0]
			wantDecision := window.Decision{
				Allowed: row.RetryAfter == 0, Limit: limit, Remaining: row.Remaining, RetryAfter: row.RetryAfter,
				ResetAfter: time.Duration(seconds(row.ResetAfter)) * time.Second, EffectiveWindow: d.EffectiveWindow,
			}
			if d != wantDecision || d.EffectiveWindow <= 0 || d.Remaining == 0 && d.EffectiveWindow > d.ResetAfter {
				t.Errorf("%s, row %d: %+v, want %+v", c.Command, i, d, wantDecision)
			}
		}
	}
}

// An answer of CL.THROTTLE that cannot be stays within what a decision may say.
func TestOddThrottle(t *testing.T) {
	w := NewWriter(oneName, nil)
	for _, c := range []struct {
		answer []int64
		want   window.Decision
	}{
		{[]int64{1, 10, 0, 0, 5}, window.Decision{RetryAfter: time.Second, ResetAfter: 5 * time.Second}},
		{[]int64{1, 10, -3, -1, -1}, window.Decision{RetryAfter: time.Second}},
		{[]int64{0, 10, 99, -1, -7}, window.Decision{Allowed: true, Remaining: 10}},
	} {
		call := w.Throttle(Take, []window.Charge{with(one("key"), func(c *window.Charge) { c.Algorithm = window.GCRA{} })})
		call.Reply = c.answer
		results := make([]window.Result, 1)
		call.Answer(results)
		got := results[0].Decisions[0]
		c.want.Limit, c.want.EffectiveWindow = 10, got.EffectiveWindow
		if got != c.want || got.EffectiveWindow <= 0 {
			t.Errorf("%v: %+v, want %+v", c.answer, got, c.want)
		}
	}
}
