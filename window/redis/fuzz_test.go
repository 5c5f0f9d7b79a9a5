package redis_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/wire"
)

// lies are replies that no server makes.
var lies = append([]string{
	integers(1, -5, 1, 4, 0, 60_000, 60_000) + "\r\n",
	integers(1, -5, 0, 0, 5, 60_000, 60_000, 1, 2, 0, 3, 3) + "\r\n",
	integers(1, 4) + "\r\n",
	integers(1, -4, 4, 60_000, 6_000) + "\r\n",
	integers(1, -5, 1, 4, 0, 3, 3, 1, 1, 0, 3, 3, 1, 0, 0, 3, 3, -4, 0, 1, 1, -2) + "\r\n",
	integers(0, 5, 4, -1, 12) + "\r\n",
	integers(1, -1) + "\r\n",
	integers(1, -5, 2, 4, 0, 1, 1) + "\r\n",
	integers(1, -6) + "\r\n",
	integers(1, 6) + "\r\n",
	integers(1, -4, 4, 1) + "\r\n",
	integers(-1<<63, -5, 1, 1<<63-1, -1<<63, 1<<63-1, 1<<63-1) + "\r\n",
}, redistest.OddReplies...)

// FuzzReplies asks a server that sends any bytes. Each call ends in time, with one valid
// decision per policy, or with an error that says that the store is unavailable. The replies
// answer one command after the other, with a zero byte between them. The last one is
// repeated, or is followed by silence.
func FuzzReplies(f *testing.F) {
	const hello = "-ERR unknown command\r\n"
	for i, lie := range lies {
		f.Add(uint8(i), hello+"\x00"+lie)
		f.Add(uint8(i), lie)
	}
	f.Add(uint8(2), hello+"\x00-NOSCRIPT\r\n\x00+OK\r\n\x00"+lies[0])
	f.Add(uint8(64), "%1\r\n+proto\r\n:3\r\n\x00>1\r\n+x\r\n"+lies[1])
	var now atomic.Pointer[liar]
	address := listen(f, func(c net.Conn) { now.Load().serve(c) })
	const timeout = 10 * time.Millisecond
	f.Fuzz(func(t *testing.T, mode uint8, text string) {
		now.Store(&liar{bytes.Split([]byte(text), []byte{0}), mode&128 != 0})
		o := redis.Options{Addresses: []string{address}, Timeout: timeout}
		if mode&64 != 0 {
			o.KeySecret, o.FormerKeySecret = secret, former
		}
		s := redis.New(o)
		defer func() { _ = s.Close() }()
		start := time.Now()
		askLiar(t, s, mode)
		if took := time.Since(start); took > timeout+patience {
			t.Errorf("the call took %s", took)
		}
	})
}

// askLiar makes one call of a store.
func askLiar(t *testing.T, s *redis.Store, mode uint8) {
	ctx := context.Background()
	one, other, native := charge("zone", "key", 5, time.Minute), packed("packed", "key", 1, 9, time.Hour), charge("native", "key", 5, time.Minute)
	native.Algorithm = window.GCRA{Native: window.NativeAuto}
	one.Policies = append(one.Policies, window.Policy{Limit: 2, Window: time.Second})
	switch charges := []window.Charge{one, other}; mode % 7 {
	case 0:
		checkResult(t, charges, result(s.Take(ctx, charges)))
	case 1:
		checkResult(t, charges[:1], result(s.Take(ctx, charges[:1])))
	case 2:
		checkResult(t, []window.Charge{native}, result(s.Take(ctx, []window.Charge{native})))
	case 3:
		checkResult(t, charges[1:], result(s.Peek(ctx, charges[1:])))
	case 4:
		requests := [][]window.Charge{charges, {native}, charges[:1]}
		for i, r := range s.TakeBatch(ctx, requests) {
			checkResult(t, requests[i], r)
		}
	case 5:
		for _, err := range []error{s.GiveBack(ctx, one, 1, 1), s.Reset(ctx, native)} {
			if err != nil && !errors.Is(err, window.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		}
	case 6:
		if err := s.Ping(ctx); err != nil && !errors.Is(err, window.ErrUnavailable) {
			t.Errorf("Ping = %v, want ErrUnavailable", err)
		}
	}
}

func result(ds []window.Decision, err error) window.Result {
	return window.Result{Decisions: ds, Err: err}
}

// checkResult holds that a result is an error or well-formed.
func checkResult(t *testing.T, charges []window.Charge, r window.Result) {
	t.Helper()
	if r.Err != nil {
		if !errors.Is(r.Err, window.ErrUnavailable) || r.Decisions != nil {
			t.Errorf("got %+v, want ErrUnavailable", r)
		}
		return
	}
	if len(r.Decisions) != engine.CountPolicies(charges) {
		t.Fatalf("got %d decisions, want %d", len(r.Decisions), engine.CountPolicies(charges))
	}
	for i, c := range charges {
		for j, p := range c.Policies {
			d := r.Decisions[engine.CountPolicies(charges[:i])+j]
			if d.Limit != p.AtOnce(c.Algorithm) || d.Remaining < 0 || d.Remaining > d.Limit ||
				d.RetryAfter < 0 || d.ResetAfter < 0 || d.EffectiveWindow < 0 {
				t.Errorf("got %+v", d)
			}
		}
	}
}

// liar is a server with its replies.
type liar struct {
	replies [][]byte
	silent  bool // after the last one
}

// serve answers each command on a connection with the next reply.
func (l *liar) serve(c net.Conn) {
	own := l.replies
	for r := bufio.NewReader(c); ; {
		if _, err := readCommand(r); err != nil {
			return
		}
		if _, err := c.Write(own[0]); err != nil {
			return
		}
		switch {
		case len(own) > 1:
			own = own[1:]
		case l.silent:
			_, _ = io.Copy(io.Discard, c)
			return
		}
	}
}

// answers reads the reply to a call under a number of names.
func answers(requests [][]window.Charge, reply []int64, names int, native bool) []window.Result {
	c := wire.Call{Op: wire.Take, Requests: requests, Reply: reply, Names: make([]naming.Naming, names), Native: native}
	results := make([]window.Result, len(requests))
	c.Answer(results)
	return results
}

// FuzzAnswer reads the numbers of a reply to requests of one and more policies.
func FuzzAnswer(f *testing.F) {
	numbers := func(all ...int64) []byte {
		var b []byte
		for _, n := range all {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		return b
	}
	f.Add(uint8(1), numbers(1, 1, 4, 0, 60_000, 60_000))
	f.Add(uint8(3), numbers(1, -1, 0, 0, 5, 1, 1, 1, 2, 0, 3, 3))
	f.Add(uint8(2), numbers(1, 1, 1<<62, -2, 1<<62, 1<<62))
	for _, wrong := range [][2]int64{{0, 2}, {1, -1}, {1, 6}, {2, -2}, {3, -1}, {4, -1}, {2, 1<<62 - 1}, {3, 1<<62 - 1}, {4, 1<<62 - 1}, {5, 2}, {11, 1}} {
		reply := []int64{1, 4, 0, 9, 9, 1, 8, 0, 9, 9, 0, 0, -1, 0, 9}
		reply[wrong[0]] = wrong[1]
		f.Add(uint8(0), numbers(append([]int64{1}, reply...)...))
	}
	f.Add(uint8(9), numbers(0, 5, 4, -1, 12))
	f.Add(uint8(9), numbers(1, 1<<62, 1<<62, 1<<62-1, 1<<62-1))
	f.Add(uint8(0), []byte{})
	f.Fuzz(func(t *testing.T, mode uint8, bytes []byte) {
		reply := make([]int64, len(bytes)/8)
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(bytes[8*i:]))
		}
		one, other := charge("zone", "key", 5, time.Minute), packed("packed", "key", 1, 9, time.Hour)
		other.Policies = append(other.Policies, window.Policy{Limit: 0, Window: time.Second})
		requests := [][]window.Charge{{one, other}, {other}, {one}}[:1+mode%3]
		native := mode&8 != 0
		if native {
			other.Algorithm, other.Pack, other.Policies = window.GCRA{Native: window.NativeAuto}, 0, other.Policies[:1]
			requests = [][]window.Charge{{other}}
		}
		for i, r := range answers(requests, reply, 1+int(mode>>2&1), native) {
			if r.Err == nil {
				checkResult(t, requests[i], r)
			}
		}
	})
}
