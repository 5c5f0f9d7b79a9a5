package cli

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// textWidth returns how many columns of a terminal s takes: two for a wide letter, as of Chinese, and none for a
// mark on the letter before.
func textWidth(s string) (columns int) {
	for _, r := range s {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	if r < ' ' || unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// broken returns s in lines of at most a width, broken between words. A longer word is broken where the line ends.
func broken(s string, most int) (lines []string) {
	if textWidth(s) <= most {
		return []string{s}
	}
	var line strings.Builder
	at := 0
	end := func() {
		lines = append(lines, line.String())
		line.Reset()
		at = 0
	}
	for word := range strings.FieldsSeq(s) {
		columns := textWidth(word)
		switch {
		case at == 0:
		case at+1+columns <= most:
			line.WriteByte(' ')
			at++
		default:
			end()
		}
		for _, r := range word {
			if at > 0 && at+runeWidth(r) > most {
				end()
			}
			line.WriteRune(r)
			at += runeWidth(r)
		}
	}
	end()
	return lines
}
