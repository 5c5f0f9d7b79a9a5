package cli

import (
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// usualWidth is that of a terminal that does not tell its own.
const usualWidth = 80

// widthOf returns how wide tables for w may be; 0 for any width.
func (c *command) widthOf(w io.Writer) int {
	if c.wide || !isTerminal(w) {
		return 0
	}
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return usualWidth
}

// jsonFor returns JSON as it is written to w: unchanged, or for a terminal with escapes that mean the same.
func jsonFor(w io.Writer, text []byte) []byte {
	if isTerminal(w) {
		return escapeJSON(text)
	}
	return text
}

// escapeJSON writes runes that a terminal may take for a command, or does not show, as \uXXXX. JSON has them in strings only,
// such as the key of a client: control characters, among them U+009B, and characters that change the direction of text.
func escapeJSON(text []byte) []byte {
	escaped := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			escaped = append(escaped, `\ufffd`...)
		case r == '\n' || unicode.IsPrint(r):
			escaped = append(escaped, text[:size]...)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				escaped = fmt.Appendf(escaped, `\u%04x`, unit)
			}
		}
		text = text[size:]
	}
	return escaped
}
