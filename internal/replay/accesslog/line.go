package accesslog

import "time"

// Line is a request of an access log. Reader.All reuses it for a later line: a copy of the struct stays valid, and keeps
// a chunk of its file in memory.
type Line struct {
	// Start is when the request came: End minus Duration, in nanoseconds since 1970.
	Start int64
	// End is when the request was logged, after the answer, in nanoseconds since 1970.
	End int64
	// Duration is 0 if the log has none: Has(FieldDuration).
	Duration time.Duration
	// Precision of End: a second, a millisecond or a nanosecond.
	Precision time.Duration

	Size   int64 // bytes of the answer's body
	Status int   // 0: nothing was answered
	Format Format

	Method string
	Proto  string // HTTP/1.1, HTTP/2.0
	Host   string // as in the request: with a port, if it had one
	URI    string // as in the request: path and query

	RemoteIP   string // of the connection
	RemotePort string
	ClientIP   string // of the client, behind trusted proxies; Caddy 2.7 and newer
	UserID     string // of the user that was authenticated

	TLS        bool
	ServerName string // of the TLS handshake

	Source string // the file's name
	Number int64  // the line's number in it, from 1

	// Value is what Options.Prepare left here.
	Value any

	fields  Field
	local   bool   // its time has no zone
	text    string // the line; JSON from its first brace
	request string // the object `request` of Caddy's JSON
	headers string // the object `headers` of it
	referer string // combined: as written, between the quotes
	agent   string // combined: as written, between the quotes
}

// Format of a line.
type Format uint8

// Formats that Line.Format has.
const (
	JSON     Format = iota + 1 // Caddy's JSON
	Console                    // Caddy's console format: columns, then JSON
	Combined                   // nginx and Apache: common, combined, with or without a virtual host
)

// String returns the format's name.
func (f Format) String() string {
	switch f {
	case JSON:
		return "Caddy's JSON"
	case Console:
		return "Caddy's console format"
	case Combined:
		return "combined"
	}
	return "unknown"
}

// Field is a set of fields that a line may have.
type Field uint32

// Fields of Line that a log may lack.
const (
	FieldDuration Field = 1 << iota
	FieldStatus
	FieldSize
	FieldMethod
	FieldProto
	FieldHost
	FieldURI
	FieldRemoteIP
	FieldRemotePort
	FieldClientIP
	FieldUserID // the log says who the user is, empty if the request had no user
	FieldTLS    // the log says whether the connection had TLS
	FieldServerName
)

// Has reports whether the log has all fields of f for this request.
func (l *Line) Has(f Field) bool { return l.fields&f == f }

// WholeSeconds reports whether the log's times have no fractions. The order of requests within a second is that of
// the log, and a peak in w seconds lies between those in w−1 and in w+1 seconds.
func (l *Line) WholeSeconds() bool { return l.Precision >= time.Second }

// Text returns the line as it was read; without its columns, in the console format.
func (l *Line) Text() string { return l.text }

// Presence says what a log knows of a value.
type Presence uint8

// What a log knows of a value.
const (
	Unknown  Presence = iota // the log cannot tell: it has no such field
	Absent                   // the request had no such header
	Redacted                 // the log has something else in its place
	Present
)

// String returns p in a word.
func (p Presence) String() string {
	return [...]string{"unknown", "absent", "redacted", "present"}[p]
}
