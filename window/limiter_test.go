package window_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/memory"
)

func newLimiter(t *testing.T, store window.Store, limit int64) window.Limiter {
	t.Helper()
	l, err := window.NewLimiter(store, "mails", window.Log{}, window.Policy{Limit: limit, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLimiterPeekReset(t *testing.T) {
	store := memory.New(memory.Options{SweepInterval: -1, Now: func() int64 { return 1_800_000_000_000 }})
	l, ctx := newLimiter(t, store, 2), t.Context()
	for i, c := range []struct {
		ask       func(context.Context, string) (window.Decision, error)
		allowed   bool
		remaining int64
	}{{l.Peek, true, 2}, {l.Peek, true, 2}, {l.Allow, true, 1}, {l.Allow, true, 0}, {l.Peek, false, 0}, {l.Allow, false, 0}} {
		if d, err := c.ask(ctx, "anna"); err != nil || d.Allowed != c.allowed || d.Remaining != c.remaining {
			t.Errorf("call %d: %+v, %v; want allowed %v, remaining %d", i, d, err, c.allowed, c.remaining)
		}
	}
	if err := l.Reset(ctx, "anna"); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Allow(ctx, "anna"); err != nil || !d.Allowed || d.Remaining != 1 {
		t.Errorf("after Reset: %+v, %v", d, err)
	}
}

func TestLimiterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{SweepInterval: -1})
		l, start := newLimiter(t, store, 1), time.Now()
		waited := func(ctx context.Context, want error, after time.Duration) {
			t.Helper()
			if err := l.Wait(ctx, "anna"); !errors.Is(err, want) || time.Since(start) != after {
				t.Errorf("Wait = %v after %s, want %v after %s", err, time.Since(start), want, after)
			}
		}
		waited(t.Context(), nil, 0)
		waited(t.Context(), nil, time.Minute)
		short, cancel := context.WithTimeout(t.Context(), time.Minute-time.Millisecond)
		defer cancel()
		waited(short, context.DeadlineExceeded, time.Minute)
		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		waited(gone, context.Canceled, time.Minute+time.Second)
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waited(long, nil, 2*time.Minute)

		none := newLimiter(t, store, 0)
		if err := none.Wait(t.Context(), "bert"); err == nil {
			t.Error("Wait under a limit of 0 returned no error")
		}
	})
}

// away is a store that does not answer.
type away struct {
	window.Store
	err error
}

func (a away) Take(context.Context, []window.Charge) ([]window.Decision, error) { return nil, a.err }
func (a away) Peek(context.Context, []window.Charge) ([]window.Decision, error) { return nil, a.err }

// local is one that memory replaces.
type local struct{ away }

func (l local) Local() window.Store { return l.Store }

func TestLimiterOnError(t *testing.T) {
	store := memory.New(memory.Options{SweepInterval: -1})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	outage := away{store, window.ErrUnavailable}
	for _, c := range []struct {
		name    string
		store   window.Store
		onError window.OnError
		ctx     context.Context
		allowed bool
		err     error
	}{
		{"fail", outage, 0, t.Context(), false, window.ErrUnavailable},
		{"allow", outage, window.Allow, t.Context(), true, nil},
		{"deny", outage, window.Deny, t.Context(), false, nil},
		{"local", local{outage}, window.Local, t.Context(), true, nil},
		{"local of a store that has none", outage, window.Local, t.Context(), false, window.ErrUnavailable},
		{"allow, the caller is gone", outage, window.Allow, ended, false, window.ErrUnavailable},
		{"allow, the charge makes no sense", away{store, window.ErrInvalid}, window.Allow, t.Context(), false, window.ErrInvalid},
	} {
		l := newLimiter(t, c.store, 1)
		l.OnError = c.onError
		for name, ask := range map[string]func(context.Context, string) (window.Decision, error){"Peek": l.Peek, "Allow": l.Allow} {
			if d, err := ask(c.ctx, c.name); d.Allowed != c.allowed || !errors.Is(err, c.err) {
				t.Errorf("%s: %s = %+v, %v; want %v, %v", c.name, name, d, err, c.allowed, c.err)
			}
			_ = store.Reset(c.ctx, l.Zone.Charge(c.name, 1))
		}
	}
	l := newLimiter(t, outage, 1)
	l.OnError = window.Deny
	if err := l.Wait(t.Context(), "anna"); !errors.Is(err, window.ErrUnavailable) {
		t.Errorf("Wait with Deny = %v, want ErrUnavailable", err)
	}
}

func TestPolicyString(t *testing.T) {
	if got := (window.Policy{Limit: 100, Window: time.Hour}).String(); got != "100 per 1h0m0s" {
		t.Errorf("String() = %s", got)
	}
}
