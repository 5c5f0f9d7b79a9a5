package storestate

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// What a line was written for, after which pings, at which time.
func TestOutageIsToldAgain(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewOutages("told again", nil, false)
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
	ping("nobody knows of an outage")
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
	} {
		now = now.Add(step.after)
		if told := ping(step.cause); told != step.told {
			t.Errorf("step %d, %s: told is %t, want %t", i, step.cause, told, step.told)
		}
	}
	if cause := l.Away()[""].Cause.Error(); !strings.HasSuffix(cause, "reset") {
		t.Errorf("the cause is %q, want the last one that was told", cause)
	}
	l.Changed("", false, nil)
	if ping("after it") {
		t.Error("an outage is told that has ended")
	}
}
