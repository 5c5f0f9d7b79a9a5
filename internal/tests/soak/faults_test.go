package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// What the stores are told.
const (
	timeout  = 200 * time.Millisecond
	poolSize = 10
)

// world is what can fail.
type world struct {
	*testing.T
	servers   []*redistest.Server
	network   *toxiproxy.Proxy // nil: Caddys talk to the servers themselves
	faults    []fault
	store     string // its words in a Caddyfile
	caddys    []*caddyrun.Process
	addresses []string
	reloads   int
	streams   *streams
	periods   []period
}

func startWorld(t *testing.T) *world {
	// What Redis has answered is on its disk: a server that is killed loses nothing.
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	w := &world{T: t, servers: []*redistest.Server{server}, faults: append(slices.Clone(anywhere), alone...)}
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	w.network = toxiproxy.NewProxy(api, "redis", "127.0.0.1:0", server.Addr)
	if err := w.network.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.network.Stop)
	w.store = "address " + w.network.Listen
	w.startCaddys()
	return w
}

func (w *world) startCaddys() {
	w.streams = startStreams(w.T)
	for range 2 {
		address := caddyrun.FreeAddress(w.T)
		w.addresses = append(w.addresses, address)
		w.caddys = append(w.caddys, caddyrun.Start(w.T, w.caddyfile(address, 0), address))
	}
	w.streams.addresses = append(slices.Clone(w.addresses), caddyrun.FreeAddress(w.T))
	w.startVictim()
}

// fault begins, and is over when the function that begin returns has run.
type fault struct {
	name  string
	begin func(w *world, r *rand.Rand) (end func())
}

// Faults lose no writes that Redis has answered. These can befall any servers.
var anywhere = []fault{
	{"Redis hangs", func(w *world, r *rand.Rand) func() {
		s := w.one(r)
		s.Stop()
		return s.Cont
	}},
	{"out of memory", func(w *world, r *rand.Rand) func() {
		s := w.one(r)
		w.command(s, "CONFIG", "SET", "maxmemory", "1")
		return func() { w.command(s, "CONFIG", "SET", "maxmemory", "0") }
	}},
	{"SCRIPT FLUSH", func(w *world, r *rand.Rand) func() {
		w.command(w.one(r), "SCRIPT", "FLUSH")
		return func() {}
	}},
	{"connections are closed", func(w *world, r *rand.Rand) func() {
		w.command(w.one(r), "CLIENT", "KILL", "TYPE", "normal")
		return func() {}
	}},
	{"script of another tenant", func(w *world, r *rand.Rand) func() {
		ms := 100 + r.IntN(500)
		w.command(w.one(r), "EVAL", fmt.Sprintf(`local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
local start = ms() while ms() < start + %d do end`, ms), "0")
		return func() {}
	}},
	{"Caddy is reloaded", func(w *world, r *rand.Rand) func() {
		w.reload(r.IntN(len(w.caddys)))
		return func() {}
	}},
	// For up to 4 s: longer than any window and any lease.
	{"Caddy is frozen", func(w *world, r *rand.Rand) func() {
		p := w.caddys[r.IntN(len(w.caddys))]
		p.Stop()
		time.Sleep(time.Duration(r.IntN(2_500)) * time.Millisecond)
		return p.Cont
	}},
	{"a Caddy is killed that streams", func(w *world, _ *rand.Rand) func() {
		w.streams.victim.Kill()
		return w.startVictim
	}},
}

// These befall one server behind a proxy.
var alone = []fault{
	{"Redis is killed, and starts again", func(w *world, r *rand.Rand) func() {
		s := w.one(r)
		s.Kill()
		return func() {
			s.Restart(w.T)
			caddyrun.Eventually(w.T, time.Minute, "Redis has read what it had on disk", func() bool {
				return s.Client(w.T).Ping(context.Background()).Err() == nil
			})
		}
	}},
	{"late answers", func(w *world, r *rand.Rand) func() {
		return w.toxic(`{"name":"late","type":"latency","attributes":{"latency":%d,"jitter":100}}`, 20+r.IntN(400))
	}},
	{"silent network", func(w *world, _ *rand.Rand) func() {
		return w.toxic(`{"name":"silent","type":"timeout","attributes":{"timeout":%d}}`, 0)
	}},
	{"connections are reset", func(w *world, r *rand.Rand) func() {
		return w.toxic(`{"name":"reset","type":"reset_peer","attributes":{"timeout":%d}}`, r.IntN(50))
	}},
	{"replies are cut off", func(w *world, r *rand.Rand) func() {
		return w.toxic(`{"name":"cut","type":"limit_data","attributes":{"bytes":%d}}`, r.IntN(5_000))
	}},
	{"connections are refused", func(w *world, _ *rand.Rand) func() {
		w.network.Stop()
		return func() {
			if err := w.network.Start(); err != nil {
				w.Error(err)
			}
		}
	}},
}

// one returns a server that takes writes.
func (w *world) one(r *rand.Rand) *redistest.Server {
	for {
		if s := w.servers[r.IntN(len(w.servers))]; s.IsMaster(w.T) {
			return s
		}
	}
}

func (w *world) command(s *redistest.Server, args ...any) {
	if err := s.Client(w.T).Do(context.Background(), args...).Err(); err != nil && !strings.HasSuffix(err.Error(), "EOF") && !strings.HasPrefix(err.Error(), "redis: nil") {
		w.Errorf("%v: %v", args, err)
	}
}

func (w *world) toxic(format string, args ...any) func() {
	if _, err := w.network.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(format, args...))); err != nil {
		w.Error(err)
	}
	return func() { w.network.Toxics.ResetToxics(context.Background()) }
}

func (w *world) reload(i int) {
	w.reloads++
	text := strings.ReplaceAll(w.caddyfile(w.addresses[i], w.reloads), "{admin}", w.caddys[i].Admin)
	if status, body := w.caddys[i].Tell(w.T, http.MethodPost, "/load", "text/caddyfile", text); status != http.StatusOK {
		w.Errorf("reload: status %d: %s", status, body)
	}
}

// healed waits until each Caddy decides by Redis again, and returns how long it took.
func (w *world) healed(l *load) time.Duration {
	start := time.Now()
	for _, address := range w.streams.addresses {
		caddyrun.Eventually(w.T, time.Minute, "Redis decides", func() bool {
			status, _, err := l.ask(address, counter{"reloaded", l.probe()})
			return err == nil && status == http.StatusOK
		})
	}
	return time.Since(start)
}
