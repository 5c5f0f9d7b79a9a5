package answer

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/munnerz/goautoneg"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers-11.
const (
	ProblemQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	ProblemCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	ProblemAbnormal = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
	ProblemOfStatus = "about:blank" // no more than the status says (RFC 9457, 4.2.1)
)

// Problem is the body of an answer by itself (RFC 9457), or as an API writes it. Its texts hold nothing
// that JSON would escape.
type Problem struct {
	Detail     string
	RetryAfter int64 // left out if 0
	Status     int
	Title      string
	Kind       string   // the type
	Violated   []string // left out if empty
	API        *API     // nil: problem details
	Units      Units    // of the limit that denies longest; for API
}

// append writes the problem as JSON, its members in the order of their names.
func (p *Problem) append(b []byte) []byte {
	b = append(b, `{"detail":"`...)
	b = append(b, p.Detail...)
	if p.RetryAfter != 0 {
		b = append(b, `","retry_after":`...)
		b = strconv.AppendInt(b, p.RetryAfter, 10)
		b = append(b, `,"status":`...)
	} else {
		b = append(b, `","status":`...)
	}
	b = strconv.AppendInt(b, int64(p.Status), 10)
	b = append(b, `,"title":"`...)
	b = append(b, p.Title...)
	b = append(b, `","type":"`...)
	b = append(b, p.Kind...)
	separator := `","violated-policies":["`
	for _, name := range p.Violated {
		b = append(b, separator...)
		b = append(b, name...)
		separator = `","`
	}
	if len(p.Violated) > 0 {
		return append(b, `"]}`...)
	}
	return append(b, `"}`...)
}

// Write answers with the problem: as the API writes it, or in plain text if the client
// likes that better than problem details.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request) {
	room := bodies.Get().(*[]byte)
	contentType, body := ContentType, (*room)[:0]
	switch {
	case p.API != nil:
		contentType, body = "application/json", p.API.appendError(body, p)
	case prefersText(strings.Join(r.Header["Accept"], ",")):
		contentType = "text/plain; charset=utf-8"
		body = append(body, p.Title+". "+p.Detail+"\n"...)
	default:
		body = p.append(body)
	}
	w.Header()["Content-Type"] = []string{contentType}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
	*room = body
	bodies.Put(room)
}

// bodies pools buffers for response bodies; Write does not retain its argument.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

const ContentType = "application/problem+json"

func prefersText(accept string) bool {
	if accept == "" || accept == "*/*" { // what most that are no browsers send
		return false
	}
	clauses := goautoneg.ParseAccept(accept)
	asJSON := max(quality(clauses, "application", "problem+json"), quality(clauses, "application", "json"))
	return max(quality(clauses, "text", "plain"), quality(clauses, "text", "html")) > asJSON
}

// quality returns how well a client likes a type, from 0 for not at all to 1. The narrowest matching clause decides (RFC 9110, 12.5.1).
func quality(clauses []goautoneg.Accept, kind, subtype string) float64 {
	var narrowest int
	var q float64
	for _, c := range clauses {
		narrow := 0
		switch {
		case c.Type == "*" && c.SubType == "*":
			narrow = 1
		case !strings.EqualFold(c.Type, kind):
		case c.SubType == "*":
			narrow = 2
		case strings.EqualFold(c.SubType, subtype):
			narrow = 3
		}
		if narrow > narrowest {
			narrowest, q = narrow, c.Q
		}
	}
	return q
}

// ForgetBody takes from an answer what an earlier handler said of another body.
func ForgetBody(header http.Header) {
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		delete(header, name)
	}
}
