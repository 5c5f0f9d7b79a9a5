package foreign

import "strings"

// Nearest returns the one of words that word was probably meant to be: the same but for case, `_` and `-`, or with
// one slip, two in a long word. It returns "" if no word or more than one is as near.
func Nearest(word string, words []string) string {
	if len(word) > 64 { // a comparison would take long
		return ""
	}
	plain := Squash(word)
	most := 0
	switch {
	case len(plain) >= 8:
		most = 2
	case len(plain) >= 3:
		most = 1
	}
	best, found := most+1, ""
	for _, w := range words {
		switch slips := Slips(plain, Squash(w)); {
		case slips < best:
			best, found = slips, w
		case slips == best:
			found = ""
		}
	}
	return found
}

// separators is made once: a replacer takes 8 kB.
var separators = strings.NewReplacer("_", "", "-", "")

// Squash returns a word without what is easily mistaken in it: case, `_` and `-`.
func Squash(word string) string { return separators.Replace(strings.ToLower(word)) }

// Slips returns how many slips make b of a. A slip changes, adds or takes out a character, or swaps two
// neighbours.
func Slips(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			if a[i] == b[j] {
				next[j+1] = row[j]
				continue
			}
			next[j+1] = min(row[j], row[j+1], next[j]) + 1
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
