package slidingwindow

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/window"
)

// What a line was written for, after which pings, at which time.
func TestOutageIsToldAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := newOutageLog("told again")
	l.now = func() time.Time { return now }
	lines := 0
	ping := func(text string) bool {
		before := l.parts[""].told
		l.pinged("", errors.New(text))
		told := l.parts[""].told != before
		if told {
			lines++
		}
		return told
	}
	ping("nobody knows of an outage")
	l.changed("", true, errors.New("dial tcp: refused"))
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
	} {
		now = now.Add(step.after)
		if told := ping(step.cause); told != step.told {
			t.Errorf("step %d, %s: told is %t, want %t", i, step.cause, told, step.told)
		}
	}
	if cause := l.away()[""].cause.Error(); !strings.HasSuffix(cause, "reset") {
		t.Errorf("the cause is %q, want the last one that was told", cause)
	}
	l.changed("", false, nil)
	if ping("after it") {
		t.Error("an outage is told that has ended")
	}
}

func TestDangersAreToldOnce(t *testing.T) {
	w := &lookout{name: "dangers"}
	for i, step := range []struct {
		memory       *window.ServerMemory
		evicts, high bool
	}{
		{nil, false, false},
		{&window.ServerMemory{Used: 100, Policy: "allkeys-lru"}, false, false}, // without a maximum nothing is dropped
		{&window.ServerMemory{Used: 100, Max: 1000, Policy: "noeviction"}, false, false},
		{&window.ServerMemory{Used: 100, Max: 1000, Policy: "volatile-ttl"}, true, false},
		{&window.ServerMemory{Used: 800, Max: 1000, Policy: "volatile-ttl"}, true, true},
		{&window.ServerMemory{Used: 750, Max: 1000, Policy: "noeviction"}, false, true},
		{&window.ServerMemory{Used: 699, Max: 1000, Policy: "noeviction"}, false, false},
	} {
		w.note(window.Description{Memory: step.memory})
		if w.evicts != step.evicts || w.high != step.high {
			t.Errorf("step %d: evicts %t, high %t, want %t, %t", i, w.evicts, w.high, step.evicts, step.high)
		}
	}
}
