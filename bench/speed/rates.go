package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/slidingwindow/caddy-sliding-window/bench/report"
)

// perSecond are the rates at which requests are sent.
var perSecond = []int{1_000, 4_000, 8_000}

const (
	// far is the round trip to the distant Redis.
	far = 5 * time.Millisecond
	// mostInFlight bounds the requests without an answer; those beyond it are sent late.
	mostInFlight = 1_000
	// held is the least share of a rate, in %, that has to be answered for it to count as held.
	held = 99
)

// atRates is the latency of requests that are sent at a fixed rate, whether or not the
// ones before them are answered.
var atRates = table{
	name:    "rates",
	title:   "Latency of requests through Caddy at fixed rates, 100,000 keys",
	metrics: []string{"answered, % of the rate", "p50, ms", "p99, ms", "p99.9, ms"},
	drawn:   []int{1, 2, 3},
	about: "Limit 100 in 1 m, `zset`. Requests are sent by vegeta when they are due, from the same machine. The time of a request runs from when it is due. " +
		"An answer other than 200 counts as none. The distant Redis is behind a proxy on this machine that delays each answer by 5 ms.",
	prepare: func(b *bench) ([]variant, error) {
		b.busy = loadAverage()
		s, err := b.newServer()
		if err != nil {
			return nil, err
		}
		distant, err := b.newDistance(s, far)
		if err != nil {
			return nil, err
		}
		if err := b.build(); err != nil {
			return nil, err
		}
		onRedis := ours("redis", "limit 100 1m")
		sites := []site{
			{noDirective, ""},
			{"memory", ours("memory", "limit 100 1m")},
			{"Redis near", strings.ReplaceAll(onRedis, "REDIS", s.Addr)},
			{"Redis 5 ms away", strings.ReplaceAll(onRedis, "REDIS", distant)},
		}
		caddies := make([]*caddy, len(sites))
		for i, site := range sites {
			if caddies[i], err = b.newCaddy(site.directives); err != nil {
				return nil, fmt.Errorf("%s: %w", site.name, err)
			}
		}
		var variants []variant
		for _, rate := range perSecond {
			for i, site := range sites {
				name := fmt.Sprintf("%s/s, %s", report.Number(float64(rate)), site.name)
				variants = append(variants, variant{name, func() ([]float64, error) {
					if err := s.empty(); err != nil {
						return nil, err
					}
					return b.atRate(caddies[i].addr, rate)
				}})
			}
		}
		return variants, nil
	},
	remark: func(b *bench, result *report.Table) string {
		remark := fmt.Sprintf("%d cores, load average before: %s. ", runtime.NumCPU(), b.busy)
		if missed := notHeld(result); len(missed) > 0 {
			return remark + "Not held, so that the times are those of a queue: " + strings.Join(missed, "; ") + "."
		}
		return remark + "All rates were held."
	},
}

// notHeld returns the names of rows whose rate was not answered in full.
func notHeld(result *report.Table) []string {
	var missed []string
	for _, row := range result.Rows {
		if !(report.Summarize(row.Samples[0]).Median >= held) {
			missed = append(missed, row.Name)
		}
	}
	return missed
}

// loadAverage returns the load of the last minute as Linux has it.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg") // none elsewhere
	first, _, _ := strings.Cut(string(text), " ")
	if first == "" {
		return "unknown"
	}
	return first
}

// newDistance returns the address of a proxy before a server, which delays what the
// server answers, until the table is done.
func (b *bench) newDistance(s *server, delay time.Duration) (string, error) {
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(api, "redis", "127.0.0.1:0", s.Addr)
	if err := p.Start(); err != nil {
		return "", err
	}
	b.atEnd(p.Stop)
	toxic := fmt.Sprintf(`{"name":"far","type":"latency","stream":"downstream","attributes":{"latency":%d}}`, delay.Milliseconds())
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		return "", err
	}
	return p.Listen, nil
}

// atRate returns what requests at a rate come to, after those of the warm-up.
func (b *bench) atRate(addr string, rate int) ([]float64, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: mostInFlight}
	defer transport.CloseIdleConnections()
	attacker := vegeta.NewAttacker(
		vegeta.Client(&http.Client{Transport: transport, Timeout: patience}),
		vegeta.MaxWorkers(mostInFlight),
	)
	p, all := &pacer{rate: rate}, []*vegeta.Result(nil)
	from, until := b.warmUp(), b.warmUp()+b.length
	for r := range attacker.Attack(withKeys(addr), p, until, "") {
		all = append(all, r)
	}
	return p.figures(all, from, until)
}

// withKeys makes each request take a key at random.
func withKeys(addr string) vegeta.Targeter {
	return func(t *vegeta.Target) error {
		t.Method, t.URL = http.MethodGet, "http://"+addr+"/"
		t.Header = http.Header{"X-Key": {keyName(rand.IntN(keys))}} //nolint:gosec // keys need not be secret
		return nil
	}
}

// pacer makes vegeta send a request when it is due.
type pacer struct {
	rate  int // per second
	began time.Time
}

// due returns when a request is due, after the beginning.
func (p *pacer) due(request uint64) time.Duration {
	return time.Duration(request) * time.Second / time.Duration(p.rate)
}

// Pace implements vegeta.Pacer. It waits by itself, since vegeta waits with time.Sleep.
func (p *pacer) Pace(elapsed time.Duration, sent uint64) (wait time.Duration, stop bool) {
	if sent == 0 {
		p.began = time.Now().Add(-elapsed)
	}
	if early := p.due(sent) - elapsed; early > 0 {
		pause(early)
	}
	return 0, false
}

// Rate implements vegeta.Pacer.
func (p *pacer) Rate(time.Duration) float64 { return float64(p.rate) }

// figures returns the metrics of atRates: the answers between two times after the
// beginning, and quantiles of the times of the requests that are due from the first
// one on. A time runs from when a request is due, so that a request which waits to be
// sent counts as late. It is +Inf without an answer of 200.
func (p *pacer) figures(all []*vegeta.Result, from, until time.Duration) ([]float64, error) {
	answered, good := 0, 0
	var millis []float64
	failed := errors.New("no request was sent")
	for _, r := range all {
		due, at := p.due(r.Seq), r.Timestamp.Add(r.Latency).Sub(p.began)
		took := math.Inf(1)
		switch {
		case r.Error == "" && r.Code == http.StatusOK:
			took = float64(at-due) / float64(time.Millisecond)
			good++
			if at >= from && at < until {
				answered++
			}
		case r.Error != "":
			failed = errors.New(r.Error)
		default:
			failed = fmt.Errorf("status %d", r.Code)
		}
		if due >= from {
			millis = append(millis, took)
		}
	}
	if good == 0 {
		return nil, fmt.Errorf("no request was answered with 200: %w", failed)
	}
	wanted := float64(p.rate) * (until - from).Seconds()
	return []float64{
		100 * float64(answered) / wanted,
		report.Quantile(millis, 0.5), report.Quantile(millis, 0.99), report.Quantile(millis, 0.999),
	}, nil
}
