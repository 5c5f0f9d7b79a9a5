package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestMonitored(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{`1700000000.000001 [0 127.0.0.1:5] "EVALSHA" "ab" "1" "sw:2-zset:z:k" ""` + "\r\n", []string{"EVALSHA", "ab", "1", "sw:2-zset:z:k", ""}},
		{`1700000000.000001 [0 lua] "zadd" "a \"b\"\\] " "\x00\r\n\xff"` + "\r\n", []string{"zadd", `a "b"\] `, "\x00\r\n\xff"}},
		{"+OK\r\n", nil},
	} {
		if got := monitored(c.line); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.line, got, c.want)
		}
	}
}

// counted is a limiter that counts what is asked, by key, and allows each key once.
func counted(fail error) (limiter, map[string]int) {
	var mu sync.Mutex
	asked := make(map[string]int)
	return limiter{"", func() take {
		return func(_ context.Context, key string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[key]++
			return asked[key] == 1, fail
		}
	}}, asked
}

func TestTimes(t *testing.T) {
	l, asked := counted(nil)
	done, err := times(1000, 10, 50, l)
	if err != nil || done.decisions != 1000 || done.denied != 1000-int64(len(asked)) {
		t.Errorf("got %+v, error %v; want 1000 decisions on %d keys, the first on each allowed", done, err, len(asked))
	}
	sum := 0
	for _, n := range asked {
		sum += n
	}
	if sum != 1000 || len(asked) > 50 {
		t.Errorf("%d calls on %d keys, want 1000 on 50 at most", sum, len(asked))
	}
}

func TestOnce(t *testing.T) {
	for _, n := range []int{1, callers, 3*callers + 1} {
		l, asked := counted(nil)
		if err := once(callers, n, l); err != nil {
			t.Error(err)
		}
		for key, calls := range asked {
			if calls != 1 {
				t.Errorf("of %d keys: %s %d times", n, key, calls)
			}
		}
		if len(asked) != n {
			t.Errorf("%d keys of %d", len(asked), n)
		}
	}
}

// Who denies is not measured as if it allowed.
func TestDuringWithDenials(t *testing.T) {
	l, _ := counted(nil)
	if _, err := during(10*time.Millisecond, 1, 1, l); err == nil {
		t.Error("denials are no error")
	}
}

func TestDriveFails(t *testing.T) {
	want := errors.New("away")
	l, _ := counted(want)
	if _, err := times(10, 2, 5, l); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}
