package template

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/slidingwindow/caddy-sliding-window/internal/normalize"
)

// Spelling says how to get the value of a placeholder that clients can spell in several
// ways: of is called with the value of the placeholder from. The zero value is of a
// placeholder whose value counts as it is.
type Spelling struct {
	from string
	of   func(string) string
}

// IsHost reports whether the value is that of a host, or a part of one: its case does not count.
func (s Spelling) IsHost() bool {
	return s.from == "http.request.hostport" || s.from == "http.request.tls.server_name"
}

// spellings are those of the host and of the path, by the name of the placeholder
// without "http.request.". Caddy's matchers read hosts and paths like this, so that
// all spellings reach the same handler.
var spellings = map[string]Spelling{
	"host":            {"hostport", normalize.HostPort}, // without the error that {host} costs Caddy
	"hostport":        {"hostport", normalize.HostPort},
	"tls.server_name": {"tls.server_name", normalize.Host},

	"uri":           {"uri", normalize.URI},
	"uri_escaped":   {"uri", func(v string) string { return url.QueryEscape(normalize.URI(v)) }},
	"uri.path":      {"uri.path", normalize.Path},
	"orig_uri":      {"orig_uri", normalize.URI},
	"orig_uri.path": {"orig_uri.path", normalize.Path},

	"uri.path_escaped":           {"uri.path", func(v string) string { return url.QueryEscape(normalize.Path(v)) }},
	"uri.path.file":              {"uri.path", pathFile},
	"uri.path.file.base":         {"uri.path", pathBase},
	"uri.path.file.ext":          {"uri.path", func(v string) string { return path.Ext(normalize.Path(v)) }},
	"uri.path.dir":               {"uri.path", pathDir},
	"orig_uri.path.file":         {"orig_uri.path", pathFile},
	"orig_uri.path.file_escaped": {"orig_uri.path", func(v string) string { return url.PathEscape(pathFile(v)) }},
	"orig_uri.path.dir":          {"orig_uri.path", pathDir},
}

func pathFile(v string) string {
	_, file := path.Split(normalize.Path(v))
	return file
}

func pathDir(v string) string {
	dir, _ := path.Split(normalize.Path(v))
	return dir
}

func pathBase(v string) string {
	v = normalize.Path(v)
	return strings.TrimSuffix(path.Base(v), path.Ext(v))
}

// spellingOf returns the spelling of a placeholder, and whether it has one.
func spellingOf(placeholder string) (Spelling, bool) {
	const request = "http.request."
	name, ok := strings.CutPrefix(placeholder, request)
	if !ok {
		return Spelling{}, false
	}
	s, ok := spellings[name]
	if !ok {
		s, ok = spellingOfPart(name)
	}
	s.from = request + s.from
	return s, ok
}

// spellingOfPart is spellingOf for a label of the host or an element of the path.
func spellingOfPart(name string) (Spelling, bool) {
	dot := strings.LastIndexByte(name, '.')
	n, err := strconv.Atoi(name[dot+1:])
	if dot < 0 || err != nil || n < 0 {
		return Spelling{}, false
	}
	switch of := name[:dot]; of {
	case "host.labels":
		return Spelling{"hostport", func(v string) string { return normalize.Label(normalize.HostPort(v), n) }}, true
	case "uri.path", "orig_uri.path":
		return Spelling{of, func(v string) string { return normalize.Part(normalize.Path(v), n) }}, true
	}
	return Spelling{}, false
}
