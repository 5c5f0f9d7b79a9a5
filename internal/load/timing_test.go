package load

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/slidingwindow/caddy-sliding-window/internal/clock/uptime"
	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/zonepool"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// asked is a request that a zone counts.
type asked struct {
	zone   *Controller
	denied bool // by a later handler
}

func (a asked) TimedZone(i int) *Controller {
	if i > 0 {
		return nil
	}
	return a.zone
}

func (asked) Client() Client { return 1 }

func (a asked) DeniedLater() bool { return a.denied }

// measured serves a request a hundred times, and returns the percentile that is measured.
func measured(next caddyhttp.HandlerFunc, request func() *http.Request, denied bool) (time.Duration, bool) {
	o := Options{Floor: 0.3, Ceiling: 1, Recover: time.Minute}
	o.Ranges[Latency] = Range{0.2, 1}
	own := Sampler{Manual: true}
	z := own.New(engine.ZoneID{}, o)
	own.Start(z)
	for range 100 {
		func() {
			defer func() { _ = recover() }()
			_ = Serve(httptest.NewRecorder(), request(), asked{z, denied}, make(map[string]any), next)
		}()
	}
	own.Step(time.Now())
	return z.Latency()
}

// An answer is measured when its status is known, and one with status 5xx counts as hi. What is not an answer, or
// comes before all of the request, is left out.
func TestLatencyOfAnswers(t *testing.T) {
	answers := func(status int, text string) caddyhttp.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(status)
			_, err := io.WriteString(w, text)
			return err
		}
	}
	fails := func(err error) caddyhttp.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) error { return err }
	}
	plain := func() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }
	slowBody := func() *http.Request {
		return httptest.NewRequest(http.MethodPost, "/", &slow{left: 2})
	}
	for name, c := range map[string]struct {
		next    caddyhttp.HandlerFunc
		request func() *http.Request
		known   bool
		failed  bool
	}{
		"an answer":     {answers(200, "text"), plain, true, false},
		"nothing":       {func(http.ResponseWriter, *http.Request) error { return nil }, plain, true, false},
		"not found":     {fails(caddyhttp.Error(404, nil)), plain, true, false},
		"an error":      {answers(503, ""), plain, true, true},
		"its error":     {fails(caddyhttp.Error(502, errors.New("refused"))), plain, true, true},
		"another error": {fails(io.EOF), plain, true, true},
		"a panic":       {func(http.ResponseWriter, *http.Request) error { panic("no reason") }, plain, true, true},
		"an upgrade":    {answers(101, ""), plain, false, false},
		"hints first": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(103)
			w.WriteHeader(500)
			return nil
		}, plain, true, true},
		"a body that is read": {func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(io.Discard, r.Body)
			w.WriteHeader(200)
			return err
		}, slowBody, true, false},
		"a body that is not read":              {answers(200, ""), slowBody, false, false},
		"a body that is not read and an error": {answers(500, ""), slowBody, true, true},
	} {
		took, known := measured(c.next, c.request, false)
		if known != c.known || (took > 900*time.Millisecond) != c.failed {
			t.Errorf("%s: latency %v, %v, want known %v, failed %v", name, took, known, c.known, c.failed)
		}
		if took, known := measured(c.next, c.request, true); known {
			t.Errorf("%s, denied later: latency %v, want none", name, took)
		}
	}
}

// slow is a body that comes in pieces.
type slow struct{ left int }

func (s *slow) Read(p []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, io.EOF
	}
	p[0] = 'x'
	return 1, nil
}

// What limiters wait for their stores, and the time that a client takes to send its body, are left out.
func TestLatencyLeavesOut(t *testing.T) {
	const pause = 50 * time.Millisecond
	o := Options{Floor: 0.3, Ceiling: 1, Recover: time.Minute}
	o.Ranges[Latency] = Range{0.2, 1}
	hold := zonepool.Of(engine.ZoneID{Store: engine.StoreID{Name: "memory"}, Zone: t.Name()})
	LimitsOf(hold, o, "zone", window.Zset{}, []window.Policy{{Limit: 100_000, Window: time.Minute}})
	defer hold.Release()
	tm := &timing{start: uptime.Now() - 10*pause}
	if took, ok := tm.took(); !ok || took < 10*pause {
		t.Errorf("took %v, %v", took, ok)
	}
	tm.outer = &timing{start: tm.start}
	WaitedSince(uptime.Now()-9*pause, map[string]any{timingVar: tm})
	for _, one := range []*timing{tm, tm.outer} {
		if took, ok := one.took(); !ok || took < pause || took > 8*pause {
			t.Errorf("took %v, %v, want the store left out", took, ok)
		}
	}
	tm.body = &timedBody{ReadCloser: io.NopCloser(strings.NewReader("body")), timing: tm, length: 4}
	if _, ok := tm.took(); ok {
		t.Error("a body is under way, and the time is known")
	}
	if _, err := tm.body.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if took, ok := tm.took(); !ok || took >= pause*8 || took < 0 {
		t.Errorf("took %v, %v from the end of the body", took, ok)
	}
	if Waiting() == 0 {
		t.Error("the counter is 0, and a zone measures")
	}
}
