// Package resp reads and writes what travels on a connection to a server, in RESP2 or RESP3.
package resp

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
)

// Bounds of a reply. The client allocates the length that a reply announces before the rest
// of the reply arrives, and reads nested lists by recursion: without bounds, a server that
// lies could crash this process. The longest reply to a command is CLUSTER SLOTS.
const (
	MostLine  = 1 << 16 // bytes
	MostText  = 1 << 20 // bytes
	MostItems = 1 << 16 // of one list
	MostDepth = 16      // of lists in lists
)

// RefusalOf returns the error that a reply is, or nil.
func RefusalOf(reply []byte) error {
	text, ok := bytes.CutPrefix(reply, []byte("-"))
	if !ok {
		if text, ok = bytes.CutPrefix(reply, []byte("!")); ok {
			_, text, _ = bytes.Cut(text, []byte("\r\n"))
		}
	}
	if !ok {
		return nil
	}
	return failure.RefusalError(strings.TrimRight(string(text), "\r\n"))
}

// AppendCommand appends a command and its arguments in RESP.
func AppendCommand(b []byte, args []string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(args)), 10), "\r\n"...)
	for _, arg := range args {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(arg)), 10), "\r\n"...)
		b = append(append(b, arg...), "\r\n"...)
	}
	return b
}

// ReadReply appends a reply, in RESP2 or RESP3. Its lengths were checked: see package respguard.
func ReadReply(r *bufio.Reader, b []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < len("+\r\n") {
		return nil, failure.ErrReply
	}
	b = append(b, line...)
	kind := line[0]
	n, items := 0, 1
	switch kind {
	case '$', '=', '!', '*', '~', '>', '%', '|':
		if n, err = Length(bytes.TrimRight(line[1:], "\r\n"), MostText); err != nil {
			return nil, err
		}
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return b, nil
		}
		text := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return append(b, text...), nil
	case '%':
		items = 2
	case '*', '~', '>':
	case '|': // attributes, and then what they belong to
		items = 2
	default:
		return b, nil
	}
	n *= items
	if kind == '|' {
		n++
	}
	for range max(n, 0) {
		if b, err = ReadReply(r, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Length reads a length of at most `most`; -1 is the length of a null.
func Length(text []byte, most int) (int, error) {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < -1 || n > most {
		return 0, failure.ErrReply
	}
	return n, nil
}

// TextOf returns the text that a reply is, or nothing.
func TextOf(reply []byte) string {
	head, text, _ := bytes.Cut(reply, []byte("\r\n"))
	if len(head) == 0 || head[0] != '$' {
		return ""
	}
	return string(bytes.TrimSuffix(text, []byte("\r\n")))
}
