package respguard

import (
	"strings"
	"testing"

	"github.com/slidingwindow/caddy-sliding-window/internal/testkit/redistest"
)

// checkReplies reports whether replies that come in parts are let through.
func checkReplies(parts ...[]byte) bool { return checkAll(new(replies), parts) }

// checkSentinel reports whether those of a Sentinel are, after it was sent something.
func checkSentinel(sent string, parts ...[]byte) bool {
	r := &replies{sentinel: new(sentinel)}
	r.sentinel.sent([]byte(sent))
	return checkAll(r, parts)
}

func checkAll(r *replies, parts [][]byte) bool {
	for _, part := range parts {
		if r.check(part) != nil {
			return false
		}
	}
	return true
}

// lies are replies of all forms.
var lies = append([]string{
	"*7\r\n:1\r\n:-5\r\n:1\r\n:4\r\n:0\r\n:60000\r\n:60000\r\n",
}, redistest.OddReplies...)

// TestReplyLengths holds what is let through, to the byte and to the item.
func TestReplyLengths(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("*1\r\n", n) + ":1\r\n" }
	for _, c := range []struct {
		text string
		want bool
	}{
		{"*65536\r\n", true},
		{"*65537\r\n", false},
		{"%65536\r\n", true},
		{"%65537\r\n", false},
		{"$1048576\r\n", true},
		{"$1048577\r\n", false},
		{"$2\r\n\r\n\r\n*65537\r\n", false},
		{"$9\r\n*65537\r\n\r\n+OK\r\n", true}, // inside of a text
		{"+" + strings.Repeat("x", 1<<16-3) + "\r\n", true},
		{"+" + strings.Repeat("x", 1<<16-2) + "\r\n", false},
		{strings.Repeat(nested(16), 3), true},
		{nested(17), false},
		{"|1\r\n+a\r\n:1\r\n" + nested(16) + nested(16), true},
		{"*2\r\n|1\r\n+a\r\n:1\r\n*0\r\n*-1\r\n" + nested(16), true},
		{"*2\r\n|1\r\n+a\r\n:1\r\n:1\r\n" + nested(15), true},
		{"*2\r\n|1\r\n+a\r\n:1\r\n:1\r\n" + nested(16), false},
		{"*2\r\n|0\r\n:1\r\n$-1\r\n" + nested(16), true},
		{"*3\r\n:1\r\n*1\r\n$1\r\nx\r\n_\r\n" + nested(16), true},
		{"*?\r\n", false},
		{"$\r\n", false},
		{"\r\n", false},
		{"*-2\r\n", false},
		{"*9223372036854775807\r\n", false},
	} {
		if got := checkReplies([]byte(c.text)); got != c.want {
			t.Errorf("%.60q: let through: %t, want %t", c.text, got, c.want)
		}
	}
}

// FuzzReplyLengths: what is let through does not make the client take much memory,
// however it is cut into pieces, and what servers do reply is let through.
func FuzzReplyLengths(f *testing.F) {
	for i, lie := range lies {
		f.Add(uint8(i), []byte(lie))
	}
	f.Fuzz(func(t *testing.T, piece uint8, stream []byte) {
		whole := checkReplies(stream)
		var parts [][]byte
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+int(piece)%7)
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if got := checkReplies(parts...); got != whole {
			t.Errorf("in pieces: %t, whole: %t", got, whole)
		}
		for _, sent := range []string{redistest.AskAddress, redistest.Subscribe} {
			if got, whole := checkSentinel(sent, parts...), checkSentinel(sent, stream); got != whole {
				t.Errorf("of a Sentinel, after %q, in pieces: %t, whole: %t", sent, got, whole)
			}
		}
	})
}

// TestSentinelForms holds what forms of a Sentinel's replies are let through.
func TestSentinelForms(t *testing.T) {
	moved := redistest.Texts("message", "+switch-master", "main 127.0.0.1 1 127.0.0.1 2")
	for _, c := range []struct {
		sent, replies string
		good          bool
	}{
		{redistest.AskAddress, redistest.Texts("127.0.0.1", "6379"), true},
		{redistest.AskAddress, "*-1", true},
		{redistest.AskAddress, "_", true},
		{redistest.AskAddress, "-ERR no such master", true},
		{redistest.AskAddress, "|1\r\n+a\r\n+b\r\n" + redistest.Texts("127.0.0.1", "6379"), true},
		{redistest.AskAddress, redistest.Texts("127.0.0.1", "6379") + "\r\n*0", true}, // to something else
		{redistest.AskAddress, "*0", false},
		{redistest.AskAddress, "*1\r\n*-1", false},
		{redistest.AskAddress, "~1\r\n+x", false},
		{redistest.AskAddress, "%1\r\n+x\r\n+y", false},
		{redistest.AskAddress, "|1\r\n+a\r\n+b\r\n*0", false},
		{"*2\r\n$8\r\nsentinel\r\n$9\r\nsentinels\r\n", "*0", true},

		{redistest.Subscribe, "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n" + moved + "\r\n" + redistest.Texts("pong", "") + "\r\n+PONG\r\n" + moved, true},
		{redistest.Subscribe, ">3\r\n$7\r\nmessage\r\n$20\r\n+replica-reconf-done\r\n$1\r\nx", true},
		{redistest.Subscribe, "-ERR unknown", true},
		{redistest.Subscribe, redistest.Texts("message", "+switch-master", "main"), false},
		{redistest.Subscribe, redistest.Texts("message", "+switch-master", "main 127.0.0.1 1 127.0.0.1"), false},
		{redistest.Subscribe, redistest.Texts("message", "+switch-master", ""), false},
		{redistest.Subscribe, "*3\r\n+message\r\n++switch-master\r\n+main", false},
		{redistest.Subscribe, ">3\r\n+message\r\n=18\r\ntxt:+switch-master\r\n+main", false},
		{redistest.Subscribe, "*0", false},
		{redistest.Subscribe, "*-1", false},
		{redistest.Subscribe, redistest.Texts("pong"), false},
		{redistest.Subscribe, redistest.Texts("pong", "x", "y"), false},
		{redistest.Subscribe, redistest.Texts("message", "+switch-master"), false},
		{redistest.Subscribe, redistest.Texts("subscribe", "+switch-master", "1"), false},
		{redistest.Subscribe, "*3\r\n+message\r\n+other\r\n:1", false},
		{redistest.Subscribe, "*3\r\n:1\r\n:2\r\n:3", false},
		{redistest.Subscribe, "*3\r\n+subscribe\r\n:1\r\n:2", false},
		{redistest.Subscribe, "*3\r\n+message\r\n$-1\r\n+main", false},
		{redistest.Subscribe, "*3\r\n+message\r\n+other\r\n*1\r\n:1", false},
		{redistest.Subscribe, redistest.Texts("pmessage", "+switch-master", "main"), false},
		{redistest.Subscribe, "%1\r\n+message\r\n+x", false},
		{redistest.Subscribe, ":1", false},
	} {
		if got := checkSentinel(c.sent, []byte(c.replies+"\r\n")); got != c.good {
			t.Errorf("after %q, %q is let through: %t, want %t", c.sent, c.replies, got, c.good)
		}
	}
}
