package written

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Ignore is a comment "# lint:ignore <code> <reason>". It covers its own line or, alone on its line, the next one
// that is no comment.
type Ignore struct {
	At           Place
	Code, Reason string
	covers       int // a line of the file
}

// Covers reports whether the comment is about a line.
func (g *Ignore) Covers(at Place) bool { return at.File == g.At.File && at.Line == g.covers }

var ignoring = regexp.MustCompile(`(^|\s)#+\s*lint:ignore\b[ \t]*(\S*)[ \t]*(.*)$`)

// ignores returns the comments of a file. Text in quotes is no comment.
func ignores(file string, text []byte) (found []Ignore) {
	if !strings.Contains(string(text), "lint:ignore") {
		return nil
	}
	tokens, err := caddyfile.Tokenize(text, file)
	if err != nil {
		return nil // Caddy reports it
	}
	rows := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	for i, row := range rows {
		at := ignoring.FindStringSubmatchIndex(row)
		if at == nil || isQuoted(tokens, row[at[4]:at[5]], row) {
			continue
		}
		g := Ignore{At: Place{file, i + 1}, Code: row[at[4]:at[5]], Reason: strings.TrimSpace(row[at[6]:at[7]]), covers: i + 1}
		for strings.TrimSpace(row[:at[0]]) == "" && g.covers < len(rows) {
			next := strings.TrimSpace(rows[g.covers])
			if g.covers++; next != "" && next[0] != '#' {
				break
			}
		}
		found = append(found, g)
	}
	return found
}

// isQuoted reports whether a token holds what looks like a comment.
func isQuoted(tokens []caddyfile.Token, code, row string) bool {
	return slices.ContainsFunc(tokens, func(t caddyfile.Token) bool {
		at := strings.Index(t.Text, "lint:ignore")
		if at < 0 {
			return false
		}
		first, _, _ := strings.Cut(t.Text[at:], "\n")
		return strings.Contains(row, strings.TrimSpace(first)) && strings.Contains(first, code)
	})
}
