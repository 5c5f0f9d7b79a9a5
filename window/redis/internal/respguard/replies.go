package respguard

import (
	"bytes"

	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/failure"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/resp"
)

// replies follows a stream of replies, in RESP2 or RESP3, for their lengths.
type replies struct {
	line  []byte // the part of a line that has come
	skip  int    // bytes of a text that are still to come
	lists [resp.MostDepth]list
	depth int

	sentinel *sentinel // nil: the connection is not to a Sentinel
}

// list is a list that is not complete.
type list struct {
	left      int
	attribute bool // precedes an item, and does not count as one
}

// check reads on.
func (r *replies) check(b []byte) error {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			if r.sentinel != nil {
				r.sentinel.collect(b[:n])
			}
			b = b[n:]
			if r.skip -= n; r.skip > 0 {
				continue
			}
			if r.sentinel != nil {
				if err := r.sentinel.checkMessage(); err != nil {
					return err
				}
			}
			r.item()
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		part := b
		if end > 0 {
			part = b[:end]
		}
		if len(r.line)+len(part) > resp.MostLine {
			return failure.ErrReply
		}
		r.line = append(r.line, part...)
		b = b[len(part):]
		if end == 0 {
			return nil
		}
		err := r.head(r.line)
		if r.line = r.line[:0]; err != nil {
			return err
		}
	}
	return nil
}

// head reads the line that an item begins with.
func (r *replies) head(line []byte) error {
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) == 0 {
		return failure.ErrReply
	}
	if r.sentinel != nil {
		if err := r.sentinel.begins(line, r.depth); err != nil {
			return err
		}
	}
	pairs := 1
	switch line[0] {
	case '$', '=', '!':
		n, err := resp.Length(line[1:], resp.MostText)
		if n < 0 || err != nil {
			r.item()
			return err
		}
		r.skip = n + len("\r\n")
		return nil
	case '%', '|':
		pairs = 2
	case '*', '~', '>':
	default:
		r.item()
		return nil
	}
	n, err := resp.Length(line[1:], resp.MostItems)
	attribute := line[0] == '|'
	switch {
	case err != nil:
		return err
	case n <= 0 && !attribute:
		r.item()
	case n <= 0:
	case r.depth == resp.MostDepth:
		return failure.ErrReply
	default:
		r.lists[r.depth] = list{pairs * n, attribute}
		r.depth++
	}
	return nil
}

// item notes that an item is complete, and with it maybe the lists that it is in.
func (r *replies) item() {
	for r.depth > 0 {
		top := &r.lists[r.depth-1]
		if top.left--; top.left > 0 {
			return
		}
		r.depth--
		if top.attribute {
			return
		}
	}
}
