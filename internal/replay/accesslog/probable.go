package accesslog

import (
	"regexp"
	"strings"
)

// formats that are mistaken for access logs, and what to do. The first that a line matches counts.
var formats = []struct {
	line *regexp.Regexp
	cure string
}{
	{regexp.MustCompile(`^\S+ +\| +[{\[\d]`), "it seems to have a prefix of Docker: write the log with docker compose logs --no-log-prefix"},
	{regexp.MustCompile(`^(\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) \S+ \S+\[\d+\]: `), "it seems to have a prefix of the journal: write the log with journalctl -o cat"},
	{regexp.MustCompile(`^<\d+>`), "it seems to be syslog: cut what is before the line of the server"},
	{regexp.MustCompile(`^#(Version|Fields|Software):`), "it seems to be a log of IIS or another W3C format, which is not read"},
	{regexp.MustCompile(`^(https?|h2|wss?|grpcs?) \d{4}-\d\d-\d\dT`), "it seems to be a log of an AWS load balancer, which is not read"},
	{regexp.MustCompile(`^\S*(time|ts|level)="?[^ ]`), "it seems to be logfmt, which is not read"},
	{regexp.MustCompile(`^\s*([{}\[\]],?\s*$|"[^"]*": )`), "it seems to be JSON over several lines or in an array: write an object a line, for example with jq -c"},
	{regexp.MustCompile(`^\s*<`), "it seems to be HTML"},
}

// probable says what a line that cannot be read may be.
func probable(line string) string {
	for _, f := range formats {
		if f.line.MatchString(line) {
			return f.cure
		}
	}
	if strings.ContainsRune(line, 0) {
		return "it seems to be binary"
	}
	return "readable are Caddy's JSON and console formats, and the common and combined formats of nginx and Apache"
}
