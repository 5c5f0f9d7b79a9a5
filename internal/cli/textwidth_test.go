package cli

import (
	"bytes"
	"slices"
	"testing"
)

// Widths are those of a terminal: wide letters take two columns, marks on a letter none.
func TestTextWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "längeres": 8, "東京都": 6, "e\u0301t": 2, "🙂": 2, "\uff21": 2, "a\u200bb": 2} {
		if got := textWidth(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// Cells break between words, and words that are longer than a column anywhere.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want []string
	}{
		{"a  b", 4, []string{"a  b"}},
		{"", 1, []string{""}},
		{"the store was away", 9, []string{"the store", "was away"}},
		{"key 203.0.113.9 is", 5, []string{"key", "203.0", ".113.", "9 is"}},
		{"東京都", 3, []string{"東", "京", "都"}},
	} {
		if got := broken(c.text, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d: got %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

// Cells of one row begin in one line, and columns are as wide as their longest line.
func TestTablesAlign(t *testing.T) {
	var out bytes.Buffer
	s := newTable(&output{Writer: &out, width: 34}, "zone", "cause", "n")
	s.add("東京", "the server has not answered in time", 7)
	s.add("logins", "", 10)
	s.render()
	want := "" +
		" ZONE    CAUSE               N  \n" +
		" 東京    the server has not  7  \n" +
		"         answered in time       \n" +
		" logins                      10 \n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	s = newTable(&out, "zone", "n")
	s.right = true
	s.add("a", 7)
	s.add("b", 10)
	s.render()
	if want := " ZONE   N \n a      7 \n b     10 \n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
