package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/slidingwindow/caddy-sliding-window/internal/caddyrun"
	"github.com/slidingwindow/caddy-sliding-window/internal/redistest"
)

// What the stores are told.
const (
	timeout  = 200 * time.Millisecond
	poolSize = 10
)

// world is what can fail.
type world struct {
	*testing.T
	server    *redistest.Server
	network   *toxiproxy.Proxy
	caddys    []*caddyrun.Process
	addresses []string
	reloads   int
}

func startWorld(t *testing.T) *world {
	// What Redis has answered is on its disk: a server that is killed loses nothing.
	w := &world{T: t, server: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	w.network = toxiproxy.NewProxy(api, "redis", "127.0.0.1:0", w.server.Addr)
	if err := w.network.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.network.Stop)
	for range 2 {
		address := caddyrun.FreeAddress(t)
		w.addresses = append(w.addresses, address)
		w.caddys = append(w.caddys, caddyrun.Start(t, caddyfile(address, w.network.Listen, 0), address))
	}
	return w
}

// fault begins, and is over when the function that begin returns has run.
type fault struct {
	name  string
	begin func(w *world, r *rand.Rand) (end func())
}

// faults lose no writes that Redis has answered.
var faults = []fault{
	{"Redis hangs", func(w *world, _ *rand.Rand) func() {
		w.server.Stop()
		return w.server.Cont
	}},
	{"Redis is killed, and starts again", func(w *world, _ *rand.Rand) func() {
		w.server.Kill()
		return func() {
			w.server.Restart(w.T)
			caddyrun.Eventually(w.T, time.Minute, "Redis has read what it had on disk", func() bool {
				return w.server.Client(w.T).Ping(context.Background()).Err() == nil
			})
		}
	}},
	{"out of memory", func(w *world, _ *rand.Rand) func() {
		w.command("CONFIG", "SET", "maxmemory", "1")
		return func() { w.command("CONFIG", "SET", "maxmemory", "0") }
	}},
	{"SCRIPT FLUSH", func(w *world, _ *rand.Rand) func() {
		w.command("SCRIPT", "FLUSH")
		return func() {}
	}},
	{"connections are closed", func(w *world, _ *rand.Rand) func() {
		w.command("CLIENT", "KILL", "TYPE", "normal")
		return func() {}
	}},
	{"script of another tenant", func(w *world, r *rand.Rand) func() {
		ms := 100 + r.IntN(500)
		w.command("EVAL", fmt.Sprintf(`local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
local start = ms() while ms() < start + %d do end`, ms), "0")
		return func() {}
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
	{"Caddy is reloaded", func(w *world, r *rand.Rand) func() {
		w.reload(r.IntN(len(w.caddys)))
		return func() {}
	}},
}

func (w *world) command(args ...any) {
	if err := w.server.Client(w.T).Do(context.Background(), args...).Err(); err != nil && !strings.HasSuffix(err.Error(), "EOF") && !strings.HasPrefix(err.Error(), "redis: nil") {
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
	text := strings.ReplaceAll(caddyfile(w.addresses[i], w.network.Listen, w.reloads), "{admin}", w.caddys[i].Admin)
	if status, body := w.caddys[i].Tell(w.T, http.MethodPost, "/load", "text/caddyfile", text); status != http.StatusOK {
		w.Errorf("reload: status %d: %s", status, body)
	}
}

// healed waits until each Caddy decides by Redis again, and returns how long it took.
func (w *world) healed(l *load) time.Duration {
	start := time.Now()
	for _, address := range w.addresses {
		caddyrun.Eventually(w.T, time.Minute, "Redis decides", func() bool {
			status, _, err := l.ask(address, counter{"reloaded", l.probe()})
			return err == nil && status == http.StatusOK
		})
	}
	return time.Since(start)
}
