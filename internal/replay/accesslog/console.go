package accesslog

import "strings"

// isConsole reports whether a line has the columns of Caddy's console format: tabs between them, and a JSON object last.
func isConsole(s string) bool {
	i := strings.Index(s, "\t{")
	return i >= 0 && strings.Contains(s[:i], "\t")
}

// parseConsole reads a line of Caddy's console format: time, level, logger and message, tabs between them, then the
// fields in JSON. Any of the columns may be left out but the time.
func (p *parser) parseConsole(l *Line, s string) (result, string) {
	i := strings.Index(s, "\t{")
	columns := strings.Split(s[:i], "\t")
	r := raw{time: columns[0], message: columns[len(columns)-1]}
	for _, column := range columns[1:] {
		if isLogger(column) {
			r.logger, r.named = column, true
			break
		}
	}
	c := scanner{s: s, i: i + 1}
	if why := p.members(l, &r, &c); why != "" {
		return broken, why
	}
	return p.finish(l, &r)
}

// isMessage reports whether a line is a message in Caddy's console format that has no fields, and is no request.
func isMessage(s string) bool {
	column, _, tabs := strings.Cut(s, "\t")
	return tabs && new(Line).time(column)
}

// isLogger reports whether a column is the name of one of Caddy's loggers.
func isLogger(column string) bool {
	name, _, dotted := strings.Cut(column, ".")
	return name == "http" && dotted
}
