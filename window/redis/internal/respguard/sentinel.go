package respguard

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
)

// sentinel follows a connection that may be to a Sentinel, or to a master, and checks the
// form of what a Sentinel says. The client panics if the form is wrong. It must be:
//
//   - an address: a host and a port;
//   - a message: three parts;
//   - a message about another master: the name, and both addresses.
type sentinel struct {
	decides    atomic.Bool // it is to a master: what is sent may hold what clients send
	asked      atomic.Bool // for the address of a master, and the reply has not begun
	subscribed atomic.Bool // all that comes are messages

	size, left    int // parts of the message, and those that are not complete
	kind, channel string
	text          []byte // that is being read
}

// The beginnings of commands, after their number of words.
var (
	asksAddress = []byte("$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n")
	subscribes  = []byte("$9\r\nsubscribe\r\n")
	ofMasters   = [][]byte{[]byte("$7\r\nevalsha\r\n"), []byte("$6\r\nscript\r\n"), []byte("$11\r\ncl.throttle\r\n")}
)

// sent notes what the client writes. Until a master has been asked something, b must begin
// with a command. The client reads a reply before it asks a Sentinel again.
func (s *sentinel) sent(b []byte) {
	if s.decides.Load() {
		return
	}
	_, command, _ := bytes.Cut(b, []byte("\r\n"))
	is := func(begin []byte) bool { return bytes.HasPrefix(command, begin) }
	switch {
	case is(asksAddress):
		s.asked.Store(true)
	case is(subscribes):
		s.subscribed.Store(true)
	case slices.ContainsFunc(ofMasters, is):
		s.decides.Store(true)
	}
}

// begins checks the first line of an item, which lies in depth lists.
func (s *sentinel) begins(line []byte, depth int) error {
	if s.subscribed.Load() {
		return s.message(line, depth)
	}
	if depth > 0 || line[0] == '|' || !s.asked.Swap(false) || bytes.IndexByte([]byte("*~>%"), line[0]) < 0 {
		return nil
	}
	if n, err := resp.Length(line[1:], resp.MostItems); err != nil || n != 2 && n != -1 {
		return failure.ErrReply
	}
	return nil
}

// message checks the first line of a message, or of a part of a message.
func (s *sentinel) message(line []byte, depth int) error {
	first := line[0]
	switch {
	case depth == 0 && (first == '+' || first == '-'): // answers a ping
		return nil
	case depth == 0 && (first == '*' || first == '>'):
		n, err := resp.Length(line[1:], 3)
		if n < 2 {
			err = failure.ErrReply
		}
		s.size, s.left, s.kind, s.channel = n, n, "", ""
		return err
	case depth == 1 && first == '+':
		return s.part(line[1:])
	case depth == 1 && first == '$' && !bytes.HasPrefix(line, []byte("$-")):
		s.text = s.text[:0]
		return nil
	case depth == 1 && first == ':' && s.size == 3 && s.left == 1 && s.kind != "message":
		return nil
	}
	return failure.ErrReply
}

// collect collects a piece of a text.
func (s *sentinel) collect(b []byte) {
	if s.subscribed.Load() {
		s.text = append(s.text, b...)
	}
}

// checkMessage checks the text that collect has collected.
func (s *sentinel) checkMessage() error {
	if !s.subscribed.Load() {
		return nil
	}
	return s.part(bytes.TrimSuffix(s.text, []byte("\r\n")))
}

// part checks one text of a message.
func (s *sentinel) part(text []byte) error {
	s.left--
	good := true
	switch s.size - s.left {
	case 1:
		s.kind = string(text)
		good = s.kind == "pong" || s.size == 3 && slices.Contains([]string{"message", "subscribe"}, s.kind)
	case 2:
		s.channel = string(text)
	case 3:
		good = s.kind == "message" && (s.channel != "+switch-master" || bytes.Count(text, []byte(" ")) >= 4)
	}
	if !good {
		return failure.ErrReply
	}
	return nil
}
