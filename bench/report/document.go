package report

import (
	"fmt"
	"strings"
)

// Replace puts text between the lines <!-- bench:name --> and
// <!-- /bench:name --> of a document, in place of the text between them.
func Replace(document, name, text string) (string, error) {
	begin, end := "<!-- bench:"+name+" -->\n", "<!-- /bench:"+name+" -->\n"
	head, rest, found := strings.Cut(document, begin)
	if !found {
		return "", fmt.Errorf("the document has no line %q", strings.TrimSpace(begin))
	}
	_, tail, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("the document has no line %q after the beginning", strings.TrimSpace(end))
	}
	return head + begin + text + end + tail, nil
}
