package normalize

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fold returns s in lower case. Two strings of valid UTF-8 fold to the same string if and
// only if [strings.EqualFold] reports that they are equal. Caddy compares hosts by that
// function. It takes ſ for s, which [strings.ToLower] does not. Other bytes stay.
func Fold(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return fold(s, i)
		}
	}
	return s
}

// fold folds s from byte i on.
func fold(s string, i int) string {
	var b strings.Builder
	changed := false
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		folded := foldRune(r)
		if r == utf8.RuneError && n == 1 {
			folded = r
		}
		if folded != r && !changed {
			changed = true
			b.Grow(len(s))
			b.WriteString(s[:i])
		}
		switch {
		case !changed:
		case r == utf8.RuneError:
			b.WriteString(s[i : i+n])
		default:
			b.WriteRune(folded)
		}
		i += n
	}
	if !changed {
		return s
	}
	return b.String()
}

// foldRune returns the rune for all that differ from r in case only: in lower case if
// that is one of them.
func foldRune(r rune) rune {
	least := leastOf(r)
	if lower := unicode.ToLower(least); leastOf(lower) == least {
		return lower
	}
	return least
}

// leastOf returns the least rune that differs from r in case only.
func leastOf(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}
