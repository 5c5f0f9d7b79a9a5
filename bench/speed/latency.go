package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

const bareCall = "bare EVALSHA of the same call"

// latency is what one decision takes when nothing else goes on.
var latency = table{
	name:    "latency",
	title:   "One goroutine: the time of a decision",
	metrics: []string{"median, µs", "99 %, µs"},
	about:   "`zset`, limit 100 in 1 m, 100,000 keys. The bare call is what the store sends, sent again by go-redis.",
	ratios:  []report.Ratio{{Of: "zset", To: bareCall, Aim: report.AtMost(1.15)}},
	prepare: func(b *bench) ([]variant, error) {
		s, err := b.newServer()
		if err != nil {
			return nil, err
		}
		l := limit{100, time.Minute}
		ours := byZset.of(b.newStore(s), l)
		bare, err := b.bare(s, ours)
		if err != nil {
			return nil, err
		}
		peers, err := b.redisPeers(s, l, 1, false)
		if err != nil {
			return nil, err
		}
		var variants []variant
		for _, l := range append([]limiter{ours, bare}, peers...) {
			variants = append(variants, variant{l.name, func() ([]float64, error) {
				if err := s.empty(); err != nil {
					return nil, err
				}
				return b.oneByOne(keys, l)
			}})
		}
		return variants, nil
	},
}

// oneByOne returns the median and the 99th percentile of the time of a decision.
func (b *bench) oneByOne(keys int, l limiter) ([]float64, error) {
	if _, err := during(b.warmUp(), 1, keys, l); err != nil {
		return nil, err
	}
	var micros []float64
	timed := limiter{l.name, func() take {
		take := l.caller()
		return func(ctx context.Context, key string) (bool, error) {
			began := time.Now()
			allowed, err := take(ctx, key)
			micros = append(micros, float64(time.Since(began).Nanoseconds())/1e3)
			return allowed, err
		}
	}}
	if _, err := during(b.length, 1, keys, timed); err != nil {
		return nil, err
	}
	return []float64{report.Quantile(micros, 0.5), report.Quantile(micros, 0.99)}, nil
}

// bare returns a limiter that sends what l sends, without l: it watches what l
// sends for a key, and sends that for other keys.
func (b *bench) bare(s *server, l limiter) (limiter, error) {
	const key = "watched"
	call, err := watch(s, "evalsha", func() error {
		// The first call may have to load the script and to connect.
		_, err := drive(1, l, func(int) func() (string, bool) {
			left := 2
			return func() (string, bool) { left--; return key, left >= 0 }
		})
		return err
	})
	if err != nil {
		return limiter{}, err
	}
	at := -1
	for i, word := range call {
		if strings.Contains(word, key) {
			at = i
		}
	}
	if at < 0 {
		return limiter{}, fmt.Errorf("no key in %q", call)
	}
	client := newClient(s.Addr, 1)
	b.atEnd(func() { _ = client.Close() })
	return limiter{bareCall, func() take {
		args := make([]any, len(call))
		for i, word := range call {
			args[i] = word
		}
		return func(ctx context.Context, name string) (bool, error) {
			args[at] = strings.Replace(call[at], key, name, 1)
			cmd := goredis.NewIntSliceCmd(ctx, args...)
			_ = client.Process(ctx, cmd)
			return true, cmd.Err() // what the reply means is not its business
		}
	}}, nil
}

// watch returns the words of the last command of a name that reached the server
// while f ran.
func watch(s *server, name string, f func() error) ([]string, error) {
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(conn)
	if _, err := lines.ReadString('\n'); err != nil { // +OK
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	const last = "that was all"
	if err := s.client.Echo(context.Background(), last).Err(); err != nil {
		return nil, err
	}
	var found []string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, err
		}
		words := monitored(line)
		switch {
		case len(words) == 2 && words[1] == last:
			if found == nil {
				return nil, fmt.Errorf("no %s was sent", name)
			}
			return found, nil
		case len(words) > 0 && strings.EqualFold(words[0], name):
			found = words
		}
	}
}

// monitored returns the words of a command in a line of MONITOR, which quotes
// them as Go does.
func monitored(line string) []string {
	var words []string
	_, rest, _ := strings.Cut(line, "] ")
	for rest != "" {
		word, err := strconv.QuotedPrefix(rest)
		if err != nil {
			break
		}
		rest = strings.TrimPrefix(rest[len(word):], " ")
		word, _ = strconv.Unquote(word)
		words = append(words, word)
	}
	return words
}
