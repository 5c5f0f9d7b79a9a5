package storestate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/engine"
	"github.com/slidingwindow/caddy-sliding-window/internal/observe/metrics"
	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/metricstest"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// What a line was written for, after which pings, at which time.
func TestOutageIsToldAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewOutages("told again", nil)
	l.now = func() time.Time { return now }
	lines := 0
	ping := func(text string) bool {
		before := l.parts[""].told
		l.Pinged("", errors.New(text))
		told := l.parts[""].told != before
		if told {
			lines++
		}
		return told
	}
	ping("no outage is known")
	l.Changed("", true, errors.New("dial tcp: refused"))
	for i, step := range []struct {
		after time.Duration
		cause string
		told  bool
	}{
		{200 * time.Millisecond, "dial tcp: refused", false},
		{200 * time.Millisecond, "WRONGPASS", false},
		{200 * time.Millisecond, "WRONGPASS", false}, // too early
		{9 * time.Second, "WRONGPASS", false},
		{time.Second, "read tcp 10.0.0.1:41000->10.0.0.2:6379: reset", false}, // once may be chance
		{time.Second, "WRONGPASS", false},
		{time.Second, "WRONGPASS", true},
		{time.Minute, "WRONGPASS", false},
		{time.Second, "read tcp 10.0.0.1:41001->10.0.0.2:6379: reset", false},
		{time.Second, "read tcp 10.0.0.1:41002->10.0.0.2:6379: reset", true},
		{58 * time.Minute, "read tcp 10.0.0.1:41003->10.0.0.2:6379: reset", false},
		{2 * time.Minute, "read tcp 10.0.0.1:41004->10.0.0.2:6379: reset", true}, // an hour
		{time.Minute, "read tcp 10.0.0.1:41005->10.0.0.2:6379: reset", false},
		{time.Minute, "no answer within 100ms: context deadline exceeded", false},
		{time.Second, "no answer within 100ms: context deadline exceeded: read tcp 127.0.0.1:45380->127.0.0.1:6379: i/o timeout", true},
		{time.Minute, "no answer within 100ms: context deadline exceeded: read tcp 127.0.0.1:45381->127.0.0.1:6379: i/o timeout", false},
		{time.Second, "no answer within 100ms: context deadline exceeded: dial tcp 127.0.0.1:6379: i/o timeout", false},
		{time.Second, "no answer within 100ms: context deadline exceeded", false},
	} {
		now = now.Add(step.after)
		if told := ping(step.cause); told != step.told {
			t.Errorf("step %d, %s: told is %t, want %t", i, step.cause, told, step.told)
		}
	}
	if cause := l.Away()[""].Cause.Error(); !strings.HasSuffix(cause, "i/o timeout") {
		t.Errorf("the cause is %q, want the last one that was told", cause)
	}
	l.Changed("", false, nil)
	if ping("after it") {
		t.Error("an outage is told that has ended")
	}
}

// pods is a store whose nodes come and go.
type pods struct {
	window.Store
	engine.Parted
	there map[string]bool
}

func (p *pods) HasPart(name string) bool { return name == "" || p.there[name] }

// Each pod of a Cluster is away once, and another one has another address. The metric shows those that are there or away,
// also where two stores of one name see them.
func TestNodesThatLeaveAreNotShown(t *testing.T) {
	p := &pods{there: make(map[string]bool)}
	a, b := NewOutages("pods", p), NewOutages("pods", p)
	series := func(node string) (float64, bool) {
		return metricstest.Find(t, metricstest.Of(metrics.StoreOpen), "caddy_sliding_window_breaker_open", "store", "pods", "node", node)
	}
	node := func(i int) string { return fmt.Sprintf("10.0.0.%d:6379", i) }
	const n = 100
	for i := range n {
		p.there[node(i)] = true
		a.Changed(node(i), true, errors.New("refused"))
		b.Changed(node(i), true, errors.New("refused"))
		if v, _ := series(node(i)); v != 2 {
			t.Fatalf("node %d: %v guards find it away, want 2", i, v)
		}
		a.Changed(node(i), false, nil)
		delete(p.there, node(i))
		if i%50 != 0 { // else the part is not reported as back
			b.Changed(node(i), false, nil)
		}
	}
	b.Changed("", true, errors.New("refused"))
	for i := range n {
		v, ok := series(node(i))
		if want := i%50 == 0; ok != want || ok && v != 1 {
			t.Errorf("node %d: %v, shown: %v, want %v", i, v, ok, want)
		}
	}
	b.End()
	a.End()
	if v, ok := series(""); !ok || v != 0 {
		t.Errorf("the store as a whole: %v, %v, want 0", v, ok)
	}
}
