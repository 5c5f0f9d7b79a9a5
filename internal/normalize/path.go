package normalize

import (
	"net/url"
	"path"
	"strings"
)

// Path returns the spelling of a path that is not escaped: without . and .. elements and
// repeated slashes, as Caddy's path matcher reads it. A slash at its end stays. An empty
// path is /, which a back end gets in its place. The case stays.
func Path(p string) string {
	if p == "" {
		return "/"
	}
	cleaned := path.Clean(p)
	switch {
	case cleaned == "/" || !strings.HasSuffix(p, "/"):
		return cleaned
	case p[:len(p)-1] == cleaned:
		return p
	}
	return cleaned + "/"
}

// Part returns an element of a path, from the left, without slashes. It is empty if
// there is no such element.
func Part(p string, n int) string {
	p = strings.TrimPrefix(p, "/")
	for ; n > 0; n-- {
		i := strings.IndexByte(p, '/')
		if i < 0 {
			return ""
		}
		p = p[i+1:]
	}
	part, _, _ := strings.Cut(p, "/")
	return part
}

// URI returns the spelling of what a request asks for: the path as of Path, escaped where
// it has to be, and the query as it is. What is no URI stays.
func URI(uri string) string {
	if isPlainURI(uri) {
		return uri
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Opaque != "" {
		return uri
	}
	escaped := (&url.URL{Path: Path(u.Path)}).EscapedPath()
	if u.RawQuery != "" {
		escaped += "?" + u.RawQuery
	}
	return escaped
}

// isPlainURI reports whether nothing of a URI is to be cleaned, or may be.
func isPlainURI(uri string) bool {
	p, query, found := strings.Cut(uri, "?")
	if found && query == "" || !strings.HasPrefix(p, "/") {
		return false
	}
	for _, c := range []byte(p) {
		if !isPlain[c] {
			return false
		}
	}
	return Path(p) == p
}

// isPlain has the characters that a path is never escaped for.
var isPlain = func() (plain [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~$&+,/:;=@") {
		plain[c] = true
	}
	return plain
}()
