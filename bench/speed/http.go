package main

import (
	"fmt"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

const (
	noDirective = "no directive"
	respond429  = "`respond 429`, no directive"
	sameAnswer  = "`respond` with our fields and body"
)

var (
	httpMetrics = []string{"requests/s", "CPU, µs/request", "of it Caddy", "of it Redis", "Redis commands/request"}
	loadAbout   = "A process of its own sends over 64 connections to one Caddy at a time, all on this machine; CPU is that of Caddy, Redis and the sender. " +
		"Redis counts the commands in scripts, too."
)

var overHTTP = table{
	name:    "http",
	title:   "Requests through Caddy, 64 connections, 100,000 keys",
	metrics: httpMetrics,
	about:   "Limit 100 in 1 m. " + loadAbout,
	ratios: []report.Ratio{
		{Of: "Redis, zset", To: noDirective, Aim: report.AtLeast(0.62)},
		{Of: "Redis, log", To: noDirective},
		{Of: "Redis, gcra", To: noDirective},
		{Of: "memory, zset", To: noDirective, Aim: report.AtLeast(0.9)},
		{Of: "memory, zset", To: "caddy-ratelimit", Aim: report.AtLeast(1)},
		{Of: noDirective, To: "Redis, zset", Metric: 1},
		{Of: noDirective, To: "memory, zset", Metric: 1},
		{Of: "caddy-ratelimit", To: "memory, zset", Metric: 1},
	},
	prepare: func(b *bench) ([]variant, error) {
		return b.sites(keys, 200, []site{
			{noDirective, ""},
			{"Redis, zset", ours("redis", "limit 100 1m")},
			{"Redis, log", ours("redis", "limit 100 1m", "algorithm log")},
			{"Redis, gcra", ours("redis", "limit 100 1m", "algorithm gcra")},
			{"memory, zset", ours("memory", "limit 100 1m")},
			{"caddy-ratelimit", theirs("events 100", "window 1m")},
		})
	},
}

var hotOverHTTP = table{
	name:    "httphot",
	title:   "Requests through Caddy, 64 connections, one key",
	metrics: httpMetrics,
	about:   "Limit 1,000,000 in 4 s: everything passes. " + loadAbout,
	ratios: []report.Ratio{
		{Of: "Redis, zset, lease 1000", To: noDirective, Aim: report.AtLeast(0.85)},
		{Of: "Redis, log, lease 1000", To: noDirective, Aim: report.AtLeast(0.85)},
		{Of: "Redis, zset", To: noDirective},
		{Of: "memory, zset", To: noDirective},
		{Of: noDirective, To: "Redis, zset, lease 1000", Metric: 1},
	},
	prepare: func(b *bench) ([]variant, error) {
		return b.sites(1, 200, []site{
			{noDirective, ""},
			{"Redis, zset", ours("redis", "limit 1000000 4s")},
			{"Redis, zset, lease 1000", ours("redis", "limit 1000000 4s", "lease 1000")},
			{"Redis, log, lease 1000", ours("redis", "limit 1000000 4s", "algorithm log", "lease 1000")},
			{"memory, zset", ours("memory", "limit 1000000 4s")},
			{"caddy-ratelimit", theirs("events 1000000", "window 4s")},
		})
	},
}

var deniedOverHTTP = table{
	name:    "httpdenied",
	title:   "Denied requests through Caddy, 64 connections, one key",
	metrics: httpMetrics,
	about:   "Limit 1 in 1 h. " + loadAbout,
	ratios: []report.Ratio{
		{Of: "Redis, zset", To: respond429, Aim: report.AtLeast(0.85)},
		{Of: "Redis, zset", Metric: 4, Aim: report.AtMost(0.01)},
		{Of: "Redis, zset", To: sameAnswer},
		{Of: "memory, zset", To: respond429},
		{Of: respond429, To: "Redis, zset", Metric: 1},
	},
	prepare: func(b *bench) ([]variant, error) {
		return b.sites(1, 429, []site{
			{respond429, "respond 429"},
			{sameAnswer, sameAnswerDirectives},
			{"Redis, zset", ours("redis", "limit 1 1h")},
			{"memory, zset", ours("memory", "limit 1 1h")},
			{"caddy-ratelimit", theirs("events 1", "window 1h")},
		})
	},
}

// sameAnswerDirectives send what a denied request gets.
const sameAnswerDirectives = `header {
	Cache-Control no-store
	Content-Type application/problem+json
	Ratelimit "\"api\";r=0;t=3600"
	Ratelimit-Policy "\"api\";q=1;w=3600"
	Retry-After 3600
}
respond "{\"detail\":\"Try again in 3600 s.\",\"retry_after\":3600,\"status\":429,\"title\":\"Rate limit exceeded\",\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"violated-policies\":[\"api\"]}" 429`

// site is a name and the directives of a Caddyfile before `respond ok`. REDIS is replaced by
// the address of the server.
type site struct{ name, directives string }

// ours limits each X-Key on a store, with the words of a zone.
func ours(store string, words ...string) string {
	if store == "redis" {
		// A decision without Redis would be another measurement: it is an error.
		store = "redis redis://REDIS {\ntimeout " + timeout.String() + "\n}\non_error deny"
	}
	return fmt.Sprintf("sliding_window {\nzone api {\nkey {header.X-Key}\n%s\n}\nstore %s\n}", strings.Join(words, "\n"), store)
}

func theirs(words ...string) string {
	return fmt.Sprintf("rate_limit {\nzone api {\nkey {header.X-Key}\n%s\n}\n}", strings.Join(words, "\n"))
}

// sites starts a Caddy for each site, and one Redis for all.
func (b *bench) sites(keys, status int, sites []site) ([]variant, error) {
	s, err := b.newServer()
	if err != nil {
		return nil, err
	}
	if err := b.build(); err != nil {
		return nil, err
	}
	var variants []variant
	for _, site := range sites {
		c, err := b.newCaddy(strings.ReplaceAll(site.directives, "REDIS", s.Addr))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", site.name, err)
		}
		variants = append(variants, variant{site.name, func() ([]float64, error) {
			if err := s.empty(); err != nil {
				return nil, err
			}
			return b.requests(c, s, keys, status)
		}})
	}
	return variants, nil
}

// requests returns what the load did to a Caddy and to Redis.
func (b *bench) requests(c *caddy, s *server, keys, status int) ([]float64, error) {
	// A first request may pass where the others are denied.
	if _, err := b.load(c, b.warmUp(), keys, 0); err != nil {
		return nil, err
	}
	var before, after struct{ caddy, redis, commands float64 }
	read := func(to *struct{ caddy, redis, commands float64 }) (err error) {
		to.caddy = c.cpu()
		if to.redis, err = s.cpu(); err != nil {
			return err
		}
		to.commands, err = s.commands()
		return err
	}
	if err := read(&before); err != nil {
		return nil, err
	}
	n, err := b.load(c, b.length, keys, status)
	if err != nil {
		return nil, err
	}
	if err := read(&after); err != nil {
		return nil, err
	}
	requests := float64(n.Requests)
	caddy, redis := after.caddy-before.caddy, after.redis-before.redis
	// Reading takes two commands itself.
	commands := max(0, after.commands-before.commands-2)
	return []float64{
		requests / n.Seconds, (caddy + redis + n.cpu) / requests,
		caddy / requests, redis / requests, commands / requests,
	}, nil
}
