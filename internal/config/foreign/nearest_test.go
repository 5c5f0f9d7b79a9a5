package foreign

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"key", "limit", "cost", "count_if", "top_talkers", "enforce", "ipv4_prefix", "ipv6_prefix", "settle", "size"}
	for word, want := range map[string]string{
		"limt": "limit", "limits": "limit", "Limit": "limit", "settel": "settle", "top-talkers": "top_talkers", "toptalker": "top_talkers",
		"countif": "count_if", "siez": "size", "kee": "key",
		"ipv5_prefix": "", // as near to both
		"ks":          "", "": "", "{": "", "frequency": "", "enforcement": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestSlips(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abc", "abc", 0},
		{"abc", "acb", 1},
		{"abc", "abd", 1},
		{"abc", "ab", 1},
		{"abcd", "badc", 2},
		{"limit", "latency", 6},
	} {
		if got := Slips(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
