package replay_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/slidingwindow/caddy-sliding-window"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

var (
	traces = flag.Int("replay.traces", 300, "traces of TestAsLive, of 30 requests each")
	seed   = flag.Uint64("replay.seed", 1, "seed of TestAsLive; 0 for a random one")
)

func init() {
	caddy.RegisterModule(backEnd{})
	caddy.RegisterModule(watcher{})
	caddy.RegisterModule(steppedStore{})
}

// backEnd answers, with the status that the request asks for, once the test lets it.
type backEnd struct{}

func (backEnd) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.replay_back_end", New: func() caddy.Module { return new(backEnd) }}
}

func (backEnd) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	c := r.Context().Value(callKey{}).(*call)
	c.atBackEnd <- true
	<-c.resume
	status, _ := strconv.Atoi(r.Header.Get("X-Status"))
	if kind := r.Header.Get("X-Kind"); kind != "" {
		w.Header().Set("X-Answer", kind)
	}
	if units := r.Header.Get("X-Spent"); units != "" {
		w.Header().Set("X-Units", units)
	}
	w.WriteHeader(status)
	return nil
}

// watcher is the first handler: it notes the variables of the request.
type watcher struct{}

func (watcher) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.replay_watcher", New: func() caddy.Module { return new(watcher) }}
}

func (watcher) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	r.Context().Value(callKey{}).(*call).vars = r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	return next.ServeHTTP(w, r)
}

type callKey struct{}

// call is a request to the live server.
type call struct {
	vars      map[string]any
	atBackEnd chan bool // false: it was answered without the back end
	resume    chan struct{}
	done      chan struct{}
}

// steppedStore is memory on the clock of the test.
type steppedStore struct{}

var stepped = struct {
	now   atomic.Int64
	mu    sync.Mutex
	store *liveStore
}{}

type liveStore struct{ *memory.Store }

func (s *liveStore) Step(now int64) { stepped.now.Store(now) }

func (s *liveStore) Time() int64 { return stepped.now.Load() }

func (s *liveStore) String() string { return "live" }

func (steppedStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.sliding_window.stores.replay_stepped", New: func() caddy.Module { return new(steppedStore) }}
}

func newStepped() *memory.Store {
	return memory.New(memory.Options{Now: stepped.now.Load, SweepInterval: -1})
}

func (*steppedStore) Store() window.Store {
	stepped.mu.Lock()
	defer stepped.mu.Unlock()
	if stepped.store == nil {
		stepped.store = &liveStore{newStepped()}
	}
	return stepped.store
}

func (*steppedStore) ShadowStore() window.Store { return newStepped() }

// live is a server in this process, with a clock that the test sets.
type live struct {
	server *caddyhttp.Server
	log    string // its access log
	cancel func()
}

// startLive provisions a Caddyfile whose answers are those of backEnd.
func startLive(t testing.TB, text, dir string) *live {
	t.Helper()
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	log := filepath.Join(dir, "access.log")
	adapted = bytes.ReplaceAll(adapted, []byte(`"handler":"static_response","status_code":299`), []byte(`"handler":"replay_back_end"`))
	var config struct {
		Apps struct {
			HTTP map[string]any `json:"http"`
			SW   map[string]any `json:"sliding_window"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	servers := config.Apps.HTTP["servers"].(map[string]any)
	for _, s := range servers {
		server := s.(map[string]any)
		routes := []any{map[string]any{"handle": []any{map[string]any{"handler": "replay_watcher"}}}}
		server["routes"] = append(routes, server["routes"].([]any)...)
		server["logs"] = map[string]any{}
	}
	raw := func(v any) json.RawMessage { text, _ := json.Marshal(v); return text }
	of := &caddy.Config{Admin: &caddy.AdminConfig{Disabled: true}}
	of.StorageRaw = raw(map[string]any{"module": "file_system", "root": dir})
	of.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: raw(map[string]any{"output": "discard"})}, Exclude: []string{"http.log.access"}},
		"access": {BaseLog: caddy.BaseLog{
			WriterRaw: raw(map[string]any{"output": "file", "filename": log, "roll": false}), EncoderRaw: raw(map[string]any{"format": "json"}),
		}, Include: []string{"http.log.access"}},
	}}
	base, err := caddy.ProvisionContext(of)
	if err != nil {
		t.Fatal(err)
	}
	of.AppsRaw = caddy.ModuleMap{"http": raw(config.Apps.HTTP), "sliding_window": raw(map[string]any{"store": map[string]any{"module": "replay_stepped"}})}
	ctx, cancel := caddy.NewContext(base)
	app, err := ctx.App("http")
	if err != nil {
		cancel()
		t.Fatalf("%v\n%s", err, text)
	}
	return &live{server: app.(*caddyhttp.App).Servers["srv0"], log: log, cancel: cancel}
}

// close ends the server, and the counters.
func (l *live) close() {
	l.cancel()
	stepped.mu.Lock()
	defer stepped.mu.Unlock()
	if stepped.store != nil {
		_ = stepped.store.Close()
	}
	stepped.store = nil
}

// planned is a request of a trace, from start to end in Unix milliseconds if the back end answers.
type planned struct {
	start, end int64
	method     string
	host, uri  string
	remote     string
	header     http.Header
}

// play sends requests to the server at their times. It returns what was decided on each, and rewrites the log to the
// times of the trace.
func (l *live) play(t testing.TB, trace []planned) [][]decision {
	t.Helper()
	type event struct {
		at    int64
		i     int
		start bool
	}
	var events []event
	for i, p := range trace {
		events = append(events, event{p.start, i, true}, event{p.end, i, false})
	}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), compareBool(a.start, b.start))
	})
	decided := make([][]decision, len(trace))
	calls := make([]*call, len(trace))
	var ended []int   // in the order of the log
	var times []int64 // of their ends
	for _, e := range events {
		stepped.now.Store(e.at)
		if !e.start {
			if c := calls[e.i]; c != nil {
				close(c.resume)
				<-c.done
				ended, times = append(ended, e.i), append(times, e.at)
			}
			continue
		}
		p := &trace[e.i]
		r := httptest.NewRequest(p.method, "http://"+p.host+p.uri, http.NoBody)
		r.RequestURI, r.RemoteAddr, r.Header = p.uri, p.remote, p.header.Clone()
		r.Header.Set("X-Number", strconv.Itoa(e.i))
		c := &call{atBackEnd: make(chan bool, 1), resume: make(chan struct{}), done: make(chan struct{})}
		r = r.WithContext(contextWith(r, c))
		go func() {
			defer close(c.done)
			l.server.ServeHTTP(httptest.NewRecorder(), r)
			select {
			case c.atBackEnd <- false:
			default:
			}
		}()
		atBackEnd := <-c.atBackEnd
		if !atBackEnd {
			<-c.done
			ended, times = append(ended, e.i), append(times, e.at)
		}
		for o := range request.Outcomes(c.vars) {
			decided[e.i] = append(decided[e.i], decisionOf(o))
		}
		if atBackEnd {
			calls[e.i] = c
		}
	}
	l.rewriteLog(t, trace, ended, times)
	return decided
}

// rewriteLog gives the lines of the access log the times of the trace.
func (l *live) rewriteLog(t testing.TB, trace []planned, ended []int, times []int64) {
	t.Helper()
	text, err := os.ReadFile(l.log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != len(ended) {
		t.Fatalf("%d lines of the log, want %d", len(lines), len(ended))
	}
	var out bytes.Buffer
	for i, line := range lines {
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &members); err != nil {
			t.Fatal(err)
		}
		start, end := trace[ended[i]].start, times[i]
		members["ts"] = json.RawMessage(fmt.Sprintf("%d.%03d", end/1000, end%1000))
		members["duration"] = json.RawMessage(fmt.Sprintf("%d.%03d", (end-start)/1000, (end-start)%1000))
		line, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	if err := os.WriteFile(l.log, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// decision is what a zone decided on a request.
type decision struct {
	zone, key      string
	cost           int64
	denied, shadow bool
	limits         string
}

func decisionOf(o request.Outcome) decision {
	d := decision{zone: o.Zone.Name, key: o.Key, cost: o.Cost, denied: o.Denied, shadow: o.Shadow}
	for _, limit := range o.Decisions {
		d.limits += fmt.Sprintf("%v %d/%d retry %v reset %v; ", limit.Allowed, limit.Remaining, limit.Limit, limit.RetryAfter, limit.ResetAfter)
	}
	return d
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b: // an end before a start at one time
		return -1
	}
	return 1
}

// TestAsLive plays random requests to random configurations of a server that runs, and replays the log that the server
// wrote: each zone decides the same on each request.
func TestAsLive(t *testing.T) {
	from := *seed
	if from == 0 {
		from = rand.Uint64()
		t.Logf("-replay.seed %d", from)
	}
	const together = 10 // traces of a configuration, a day apart
	compared, denied := 0, 0
	for n := 0; n*together < *traces; n++ {
		rng := rand.New(rand.NewPCG(from, uint64(n))) //nolint:gosec // a test
		text := randomConfig(rng)
		c, d := compareTraces(t, text, randomTraces(rng, together))
		compared, denied = compared+c, denied+d
		if t.Failed() {
			t.Fatalf("configuration %d of -replay.seed %d:\n%s", n, from, text)
		}
	}
	t.Logf("%d decisions, of which %d denied", compared, denied)
	if denied*10 < compared || denied*10 > compared*9 {
		t.Errorf("%d of %d decisions denied: the traces test little", denied, compared)
	}
}

// compareTraces plays a trace live and replays it. It returns how many decisions were compared, and denied.
func compareTraces(t *testing.T, text string, trace []planned) (compared, denied int) {
	t.Helper()
	dir := t.TempDir()
	l := startLive(t, text, dir)
	want := l.play(t, trace)
	l.close()
	config := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make([][]decision, len(trace))
	_, err := replay.Decide(options(config, l.log), func(line *accesslog.Line, o request.Outcome) {
		number, _ := line.Header("X-Number")
		i, _ := strconv.Atoi(number[0])
		got[i] = append(got[i], decisionOf(o))
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range trace {
		compared += len(want[i])
		for _, d := range want[i] {
			if d.denied {
				denied++
			}
		}
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("request %d, %+v\nreplay %+v\nlive   %+v", i, trace[i], got[i], want[i])
			return compared, denied
		}
	}
	return compared, denied
}

// options are those of a replay in tests.
func options(config string, logs ...string) replay.Options {
	return replay.Options{Config: replay.Config{File: config}, Logs: logs, Top: 20, Reorder: time.Minute, Memory: 64 << 20}
}

func contextWith(r *http.Request, c *call) context.Context {
	return context.WithValue(r.Context(), callKey{}, c)
}
