package foreign

import (
	"testing"
)

// Each word of words.txt has one meaning at its place, and is written as Meaning looks for it.
func TestWords(t *testing.T) {
	seen := make(map[[2]string]string)
	each(func(place, word, cure string) {
		if other, ok := seen[[2]string{place, word}]; ok {
			t.Errorf("%s: %q means %q and %q", place, word, other, cure)
		}
		seen[[2]string{place, word}] = cure
		if got := Meaning(place, word); got != cure {
			t.Errorf("%s: %q: got %q, want %q", place, word, got, cure)
		}
		if place != Unit && word != Squash(word) {
			t.Errorf("%s: %q can only be found as it is; write %q", place, word, Squash(word))
		}
	})
	for _, c := range [][3]string{
		{Unit, "M", "M"}, {Unit, "m", "m"}, {Unit, "Hours", "h"}, {Unit, "x", ""},
		{"enforce", "Dry-Run", "write shadow"}, {"enforce", "managed_challenge", "write mark"}, {Algorithm, "token_bucket", "write gcra"}, {"nowhere", "off", ""},
	} {
		if got := Meaning(c[0], c[1]); got != c[2] {
			t.Errorf("%s: %q: got %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
