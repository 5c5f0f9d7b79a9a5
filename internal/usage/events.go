package usage

import "bytes"

// events takes the data out of a stream of Server-Sent Events that comes in pieces. Data
// passes it at once: an event may have any length.
type events struct {
	write func([]byte) // gets the data of an event, in pieces
	event func()       // is called at the end of an event

	part  part
	name  []byte // of the field
	after byte   // the byte before, if it is \r
	any   bool   // the event has data
	head  []byte // the first bytes of the data
}

// part is the part of a line that comes next.
type part uint8

const (
	fieldName  part = iota // up to the colon
	fieldBlank             // a space after the colon of data
	fieldData              // data, up to the end of the line
	fieldOther             // the rest of a line that is ignored
)

const (
	byteOrderMark = "\ufeff"
	headLen       = 16
)

// feed reads the next piece of the stream.
func (e *events) feed(p []byte) {
	for len(p) > 0 {
		end := bytes.IndexAny(p, "\r\n")
		if end != 0 {
			if end < 0 {
				end = len(p)
			}
			e.line(p[:end])
			p, e.after = p[end:], 0
			continue
		}
		if !(p[0] == '\n' && e.after == '\r') {
			e.endLine()
		}
		p, e.after = p[1:], p[0]
	}
}

// line reads a piece of a line, which is not empty.
func (e *events) line(p []byte) {
	if e.part == fieldName {
		colon := bytes.IndexByte(p, ':')
		if colon < 0 {
			e.addName(p)
			return
		}
		e.addName(p[:colon])
		p = p[colon+1:]
		e.part = fieldOther
		if string(bytes.TrimPrefix(e.name, []byte(byteOrderMark))) == "data" {
			e.part = fieldBlank
			if e.any {
				e.data([]byte("\n"))
			}
			e.any = true
		}
	}
	if e.part == fieldBlank && len(p) > 0 {
		e.part = fieldData
		if p[0] == ' ' {
			p = p[1:]
		}
	}
	if e.part == fieldData {
		e.data(p)
	}
}

// addName appends to the name of the field. A name that is too long has no meaning.
func (e *events) addName(p []byte) {
	e.name = append(e.name, p[:min(len(p), headLen-len(e.name))]...)
}

func (e *events) data(p []byte) {
	e.head = append(e.head, p[:min(len(p), headLen-len(e.head))]...)
	e.write(p)
}

// endLine ends a line, and the event if the line is empty.
func (e *events) endLine() {
	if e.part == fieldName && len(e.name) == 0 {
		if e.any {
			e.event()
		}
		e.any, e.head = false, e.head[:0]
	}
	e.part, e.name = fieldName, e.name[:0]
}

// done reports whether the event is the one that ends a stream of OpenAI.
func (e *events) done() bool {
	return string(bytes.TrimSpace(e.head)) == "[DONE]"
}
