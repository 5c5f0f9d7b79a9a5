package window_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/windowtest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

func TestGCRACheck(t *testing.T) {
	second, day := window.Policy{Limit: 10, Window: time.Second}, window.Policy{Limit: 1, Window: 24 * time.Hour}
	for i, c := range []struct {
		algo   window.GCRA
		policy window.Policy
		want   string // in the error; empty: fine
	}{
		0:  {window.GCRA{}, second, ""},
		1:  {window.GCRA{Burst: 1}, second, ""},
		2:  {window.GCRA{Burst: -1}, second, "burst -1"},
		3:  {window.GCRA{Burst: window.MaxProduct / 1_000}, window.Policy{Limit: 1_000, Window: time.Second}, ""},
		4:  {window.GCRA{Burst: window.MaxProduct/1_000 + 1}, second, "2^53"},
		5:  {window.GCRA{Burst: 100_000}, day, ""},
		6:  {window.GCRA{Burst: 110_000}, day, "292 years"},
		7:  {window.GCRA{Burst: 1 << 40}, window.Policy{Window: time.Second}, ""}, // limit 0 has no burst
		8:  {window.GCRA{Native: -1}, second, "native -1"},
		9:  {window.GCRA{Native: window.NativeAuto}, second, ""},
		10: {window.GCRA{Native: window.NativeOn, Burst: 73_000}, day, ""},
		11: {window.GCRA{Native: window.NativeOn, Burst: 73_001}, day, "200 years"},
		12: {window.GCRA{Native: window.NativeOn}, window.Policy{Window: time.Second}, "limit 0"},
		13: {window.GCRA{Native: window.NativeAuto}, window.Policy{Limit: 1, Window: 1500 * time.Millisecond}, "1.5s"},
		14: {window.GCRA{Native: window.NativeAuto}, window.Policy{Limit: 60_000, Window: time.Minute}, ""},
		15: {window.GCRA{Native: window.NativeAuto}, window.Policy{Limit: 60_001, Window: time.Minute}, "60001 in 1m0s"},
	} {
		one := window.Charge{Zone: "zone", Policies: []window.Policy{c.policy}, Algorithm: c.algo}
		err := engine.CheckCharges([]window.Charge{one})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, window.ErrInvalid)) {
			t.Errorf("case %d: CheckCharges(%+v) = %v, want %q", i, one, err, c.want)
		}
	}
	other := window.Charge{Zone: "other", Policies: []window.Policy{second}, Algorithm: window.Zset{}}
	native := window.Charge{Zone: "zone", Policies: []window.Policy{second}, Algorithm: window.GCRA{Native: window.NativeAuto}}
	both := native
	both.Policies = []window.Policy{second, day}
	for name, err := range map[string]error{
		"with a second zone":  engine.CheckCharges([]window.Charge{other, native}),
		"with a second limit": engine.CheckCharges([]window.Charge{both}),
		"settled":             engine.CheckSettle(native, 1),
	} {
		if !errors.Is(err, window.ErrInvalid) || !strings.Contains(err.Error(), `zone "zone"`) || !strings.Contains(err.Error(), "native") {
			t.Errorf("native %s: %v, want ErrInvalid", name, err)
		}
	}
}

// FuzzGCRA lets limits change, the clock step back and units be given back: never
// more than the bound in a window since the last change, and every time of every
// decision to the millisecond.
func FuzzGCRA(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		o := ops(data)
		algo := window.GCRA{Burst: o.next() % 32}
		now, log, state := windowtest.Start, new(windowtest.Log), &windowtest.Kept{Algorithm: algo}
		policies := o.policies()
		for len(o) > 0 {
			now += o.next() % 64
			log.Forget(now - 1_000)
			c := window.Charge{Algorithm: algo, Policies: policies}
			switch op := o.next(); op % 16 {
			case 0:
				policies, log = o.policies(), new(windowtest.Log)
			case 1:
				now, log = now-o.next(), new(windowtest.Log)
			case 2:
				state.ChargeMore(now, c, 1+o.next()%8)
			case 3:
				if at := now - o.next()%64; log.Count(at, window.Policy{Window: time.Millisecond}) > 0 {
					state.GiveBack(now, c, at, 1)
					log.GiveBack(at, 1)
				}
			default:
				c.Cost = op / 16
				ds := state.Decide(now, c, true)
				if window.Allowed(ds) {
					log.Spend(now, c.Cost)
				}
				for j, d := range ds {
					p := policies[j]
					if n := log.Count(now, p); n > d.Limit+max(0, p.Limit-1) {
						t.Fatalf("%+v at %d: %d units of %+v in %v", algo, now, n, p, *log)
					}
					checkGCRATimes(t, state, now, c, j, d)
				}
				checkRetry(t, state, now, c, ds)
			}
		}
	})
}

func checkGCRATimes(t *testing.T, s *windowtest.Kept, now int64, c window.Charge, j int, d window.Decision) {
	t.Helper()
	if d.Remaining < 0 || d.Remaining > d.Limit || d.RetryAfter < 0 || d.ResetAfter < 0 || d.EffectiveWindow <= 0 {
		t.Fatalf("at %d: decide(%+v) = %+v", now, c, d)
	}
	next := c
	next.Cost = d.Remaining + 1
	at := now + d.EffectiveWindow.Milliseconds()
	if s.Decide(at-1, next, false)[j].Allowed || s.Decide(at, next, false)[j].Allowed != (next.Cost <= d.Limit) {
		t.Fatalf("at %d: decide(%+v) = %+v: not the time for one more", now, c, d)
	}
	at = now + d.ResetAfter.Milliseconds()
	if d := s.Decide(at, c, false)[j]; d.ResetAfter != 0 || d.Remaining != d.Limit {
		t.Fatalf("at %d: decide(%+v) = %+v at the time of the reset", now, c, d)
	}
}
